//! Tests that secrets are redacted wherever they occur in logs, and that text resembling a secret
//! is kept. The samples are assembled from parts, so that secret scanners do not report this file.

use super::*;
use proptest::prelude::*;

const WORD: &str = "aB3xK9mQ2wE7rT5yU8iO1pL4sD6fG0hJ2kZ7vC9n";

fn redactor() -> Redactor {
    Redactor::new(vec!["hunter2-horse".into(), "line \"one\"\nsecond line of it\n".into()])
}

fn redact(text: &str) -> String {
    redactor().redact(text).into_owned()
}

fn pem(kind: &str) -> String {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    format!(
        "-----BEGIN {kind}-----\n{body}\n{body}\nMzEfYyjiWA4R4/M2bS1GB4t7\n-----END {kind}-----"
    )
}

/// Returns tokens that are found in any context, with their kinds.
fn tokens() -> Vec<(String, &'static str)> {
    let upper = WORD.to_uppercase();
    let jwt = format!("eyJ{}.eyJ{}.{}", &WORD[..17], &WORD[3..30], &WORD[..20]);
    vec![
        (format!("AKIA{}", &upper[..16]), "aws-key"),
        (format!("ghp_{}", &WORD[..36]), "github-token"),
        (format!("gho_{}", &WORD[..36]), "github-token"),
        (format!("ghs_{}", &WORD[..36]), "github-token"),
        (format!("github_pat_{}_{WORD}", &WORD[..22]), "github-token"),
        (format!("sk-ant-api03-{WORD}-{WORD}_AA"), "anthropic-key"),
        (format!("sk-{WORD}"), "openai-key"),
        (format!("sk-proj-{WORD}_{WORD}"), "openai-key"),
        (format!("xoxb-1234567890-{}", &WORD[..24]), "slack-token"),
        (format!("xoxp-1234567890-{}", &WORD[..24]), "slack-token"),
        (format!("AIza{}", &WORD[..35]), "google-key"),
        (format!("npm_{}", &WORD[..36]), "npm-token"),
        (format!("glpat-{}", &WORD[..20]), "gitlab-token"),
        (format!("sk_live_{}", &WORD[..24]), "stripe-key"),
        (format!("rk_live_{}", &WORD[..24]), "stripe-key"),
        (format!("hf_{}", &WORD[..34]), "huggingface-token"),
        (jwt, "jwt"),
        ("hunter2-horse".to_owned(), "secret"),
        ("second line of it".to_owned(), "secret"),
    ]
}

/// Returns secrets as tuples of preceding text, secret, following text and kind.
fn assigned() -> Vec<(String, &'static str, &'static str, &'static str)> {
    let basic = "dXNlcjpwYXNzd29yZDEyMw==";
    let mut all: Vec<(&str, &'static str, &'static str, &'static str)> = vec![
        ("Authorization: Bearer ", "aB3xK9mQ2wE7rT5yU8iO", "", "authorization"),
        ("-H 'authorization: token ", "aB3xK9mQ2wE7", "'", "authorization"),
        ("\"Authorization\": \"Bearer ", "aB3xK9mQ2wE7rT5yU8iO", "\"", "authorization"),
        ("{\\\"Authorization\\\":\\\"Basic ", basic, "\\\"}", "authorization"),
        ("Authorization: ", "aB3xK9mQ2wE7rT5yU8iO", "", "authorization"),
        ("sent bearer ", "aB3xK9mQ2wE7rT5yU8iO", " once", "authorization"),
        ("password=", "s3cret!pw", "", "assigned"),
        ("DB_PASS='", "tr0ub4dor", "'", "assigned"),
        ("\"password\": \"", "Summer2024!", "\",", "assigned"),
        ("--password ", "Summer2024!", " -x", "assigned"),
        ("https://user:", "s3cretpw", "@host/path", "url-password"),
        ("postgres://app:", "p%40ss", "@db:5432/x", "url-password"),
    ];
    for before in [
        "token: ",
        "API_KEY=",
        "api-key = ",
        "\"client_secret\": \"",
        "--token ",
        "{\\\"access_token\\\":\\\"",
        "?token=",
        "export AWS_SECRET_ACCESS_KEY=\"",
        "//registry.npmjs.org/:_authToken=",
        "secret => '",
        "credentials := `",
    ] {
        all.push((before, "aB3xK9mQ2wE7rT5yU8iO", "", "assigned"));
    }
    all.push(("totp_secret: ", "JBSWY3DPEHPK3PXP", "", "assigned"));
    all.into_iter().map(|(b, s, a, k)| (b.to_owned(), s, a, k)).collect()
}

#[test]
fn tokens_are_found_in_any_context() {
    for (token, kind) in tokens() {
        for (before, after) in [
            ("", ""),
            ("a ", " b"),
            ("\"", "\""),
            ("x=", "&y"),
            ("https://", "@host"),
            ("(", ")."),
            ("{\\\"a\\\":\\\"", "\\\"}"),
            ("line\\n", "\\nline"),
            ("\x1b[32m", "\x1b[0m"),
            ("\\u001b[1;32m", ""),
            ("%20", "%20"),
            ("\\u0022", "\\u0022"),
            ("é", "é"),
            ("+", "\n"),
        ] {
            let redacted = redact(&format!("{before}{token}{after}"));
            assert_eq!(redacted, format!("{before}[redacted:{kind}]{after}"), "{token}");
        }
    }
}

#[test]
fn values_of_secret_names_are_redacted() {
    for (before, secret, after, kind) in assigned() {
        let text = format!("x {before}{secret}{after}\nnext");
        let expected = format!("x {before}[redacted:{kind}]{after}\nnext");
        assert_eq!(redact(&text), expected, "{text}");
    }
}

#[test]
fn escaped_known_secrets_are_redacted() {
    assert_eq!(redact("line \"one\""), "[redacted:secret]");
    assert_eq!(redact(r#"{"a":"line \"one\""}"#), r#"{"a":"[redacted:secret]"}"#);
    assert_eq!(redact("?q=line%20%22one%22&"), "?q=[redacted:secret]&");
    let odd = Redactor::new(vec!["aXaXa!".into(), "short".into(), String::new()]);
    assert_eq!(odd.redact("aXaXa!aXaXa! short"), "[redacted:secret][redacted:secret] short");
    let twice = Redactor::new(vec!["abcabcabc".into()]);
    assert_eq!(twice.redact("abcabcabcabc."), "[redacted:secret].");
    assert!(format!("{odd:?}").ends_with(" forms of secrets)"), "{odd:?}");
}

#[test]
fn private_keys_are_redacted_completely() {
    for kind in ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
        let key = pem(kind);
        assert_eq!(redact(&format!("a\n{key}\nb\n")), "a\n[redacted:private-key]\nb\n");
        assert_eq!(redact(&key.replace('\n', "\r\n")), "[redacted:private-key]\r\n");
        let json = serde_json::json!({"k": format!("{key}\n"), "n": 1}).to_string();
        assert_eq!(redact(&json), r#"{"k":"[redacted:private-key]\n","n":1}"#);
    }
    let numbered: String =
        (1..).zip(pem("PRIVATE KEY").lines()).map(|(n, l)| format!("  {n}→{l}\n")).collect();
    assert_eq!(redact(&format!("{numbered}after")), "  1→[redacted:private-key]\nafter");
    let cut = &pem("PRIVATE KEY")[..150];
    assert_eq!(redact(cut), "[redacted:private-key]\n");
    assert_eq!(
        redact(&format!("{cut}\n\nThen some prose.\n")),
        "[redacted:private-key]\nThen some prose.\n"
    );
    for harmless in
        ["look for -----BEGIN RSA PRIVATE KEY----- in the logs\nand so on\n", &pem("CERTIFICATE")]
    {
        assert_eq!(redact(harmless), harmless);
    }
}

#[test]
fn lookalikes_are_not_redacted() {
    for text in [
        "commit 8f4b2c1d9e7a6f5b4c3d2e1f0a9b8c7d6e5f4a3b",
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "hash = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"",
        "run 01ARZ3NDEKTSV4RRFFQ69G5FAV of 550e8400-e29b-41d4-a716-446655440000",
        "targets_hash: 8f4b2c1d9e7a6f5b, token_count: 4096, max_tokens=200000",
        "token: 123456789012, tokens used: 12k",
        "let token = self.tokens.next_token(cursor2);",
        "token = access_token_v2",
        "token=$GITHUB_TOKEN_2",
        "password: <your-password-1>",
        "password: ${DB_PASSWORD1}",
        "API_KEY={{ api_key_1 }}",
        "secret: /run/secrets/db_pw1",
        "--token-file /tmp/a1b2c3d4e5f6",
        "password: required",
        "password: String,",
        "The token: a word. Secret: nobody knows. Password: none.",
        "Bearer authentication is used; basic arithmetic-is-enough too",
        "Authorization: Bearer <token>",
        "Authorization: Bearer $TOKEN",
        "task-runner-for-the-night-shift-of-agents",
        "risk-assessment-2024-of-the-whole-project",
        "sk-learn-pipelines-for-everyone-2024",
        "npm_config_registry_and_other_things_here",
        "https://example.org:8080/a@b",
        "git@github.com:owner/repo.git",
        "ssh://git@host:22/x",
        "postgres://user:${PASSWORD}@host/db",
        "http://[::1]:80/",
        "std::token::Token::new(1)",
        "eyJ is how a JWT begins",
        "if token == other { password != x }",
        "AKIA is a prefix, AKIAIOSFODNN7 too short",
        "password_hash = \"$argon2id$v=19$m=65536\"",
        "aws-sdk-client-s3-control-something-x1",
        "src/auth/token.rs:42:17",
        "Secret::from_env",
        "fence_token: 17",
        "SKIPPED and SKU12 and SK1",
        "pat.rs, sat.on.a.mat, patience.is.a.virtue.of.those.who.wait.for.very.long.builds.to.end.at.3",
        "1/2 of it, 1//0 is no number, 1/8:30",
        "bot:the robot, botanical:garden-of-every-plant-that-anybody-has-heard-of-so-far",
        "md-this-is-the-name-of-a-file-2024",
        "sl.md, t1.micro, API-GATEWAY-2, HRKU- and EAAAfrica",
        "AAAAND the winner is: everybody who stayed until the very end of it",
        "xai-lab-notes-2024 and gsk_notes and r8_bits and pplx-how-to",
        "secret_santa_list_2024 and api_org_chart_of_all_of_us_in_2024",
        "dapibus, oy2, LTAI, AKCp, glc_, rnd_seed_12, pk_first, phx_view_7",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    ] {
        assert!(matches!(redactor().redact(text), Cow::Borrowed(_)), "{}", redact(text));
    }
}

fn samples() -> Vec<String> {
    let mut all: Vec<String> =
        tokens().into_iter().map(|(token, _)| format!("a {token} b")).collect();
    all.extend(assigned().into_iter().map(|(b, s, a, _)| format!("é{b}{s}{a}\nz")));
    all.push(format!("a\n{}\nb", pem("RSA PRIVATE KEY")));
    all.push(serde_json::json!({"k": pem("PRIVATE KEY")}).to_string());
    all
}

#[test]
fn stream_redaction_is_independent_of_splits() {
    let redactor = redactor();
    for sample in samples() {
        let whole = redactor.redact(&sample);
        assert!(whole.contains("[redacted:"), "{sample}");
        let bytes = sample.as_bytes();
        for at in 0..=bytes.len() {
            let mut stream = redactor.stream();
            let parts = [stream.push(&bytes[..at]), stream.push(&bytes[at..]), stream.finish()];
            assert_eq!(parts.concat(), whole, "at {at}");
        }
        let mut stream = redactor.stream();
        let mut dripped: String = bytes.iter().map(|byte| stream.push(&[*byte])).collect();
        dripped.push_str(&stream.finish());
        assert_eq!(dripped, whole);
    }
}

#[test]
fn endless_lines_are_streamed_and_redacted() {
    let redactor = redactor();
    for sample in samples() {
        let sample = sample.replace('\n', "\\n");
        for shift in [0, 1, 7, 13, 29] {
            // The shifts place the sample at various positions around the cut.
            let before = "x ".repeat((WINDOW - 40) / 2 + shift * 4) + &"y".repeat(shift % 2);
            let text = format!("{before} {sample} {}", "z ".repeat(WINDOW));
            let whole = redactor.redact(&text);
            assert!(whole.contains("[redacted:"), "{sample}");
            let mut stream = redactor.stream();
            let early = stream.push(text.as_bytes());
            assert!(early.len() > WINDOW - LONGEST);
            assert_eq!(early + &stream.finish(), whole);
        }
    }
}

#[test]
fn key_in_endless_line_is_found_near_its_marker() {
    let begin = "-----BEGIN PRIVATE KEY-----";
    // A marker that is only mentioned, and a hash far after it in the same part of the line.
    let text = format!("{begin} is a marker {}{}", "x ".repeat(30_000), "0123456789".repeat(4));
    assert_eq!(redact(&text), text);
    // The marker of an unterminated key, after many others that are only mentioned.
    let mentions = format!("{begin} is a marker {}", "x ".repeat(700)).repeat(70);
    assert!(mentions.len() < WINDOW && mentions.len() > 2 * 6 * LONGEST);
    let shown = redact(&format!("{mentions}{begin}{WORD}{WORD}"));
    assert!(!shown.contains(WORD), "{}", &shown[shown.len() - 200..]);
}

/// Returns whether `shown` contains 16 consecutive bytes of a line of the secret.
fn leaks(shown: &str, secret: &str) -> bool {
    const PART: usize = 16;
    let lines = secret.lines().filter(|line| line.len() >= PART);
    let mut parts = lines.flat_map(|line| line.as_bytes().windows(PART));
    parts.any(|part| shown.as_bytes().windows(PART).any(|seen| seen == part))
}

#[test]
fn no_kind_leaks_at_any_cut_in_any_encoding() {
    let samples = samples::all();
    assert!(samples.len() >= 200, "{}", samples.len());
    let redactor = Redactor::new(Vec::new());
    let mut leaked = Vec::new();
    for sample in &samples {
        let text = sample.text();
        let json = serde_json::json!({ "text": text }).to_string();
        let percent = percent_encoded(&text);
        for (form, encoded) in [("plain", &text), ("json", &json), ("percent", &percent)] {
            let secret = if form == "percent" {
                percent_encoded(&sample.secret)
            } else {
                sample.secret.clone()
            };
            let whole = Redacted::of(encoded);
            let mut seen = leaks(&whole, &secret);
            for most in 0..encoded.len() {
                seen |= leaks(&whole.clone().head(most), &secret);
                seen |= leaks(&whole.clone().tail(most), &secret);
            }
            for at in 0..=encoded.len() {
                let mut stream = redactor.stream();
                let (one, two) = encoded.as_bytes().split_at(at);
                let parts = [stream.push(one), stream.push(two), stream.finish()];
                seen |= leaks(&parts.concat(), &secret);
            }
            if seen {
                leaked.push(format!("{} ({form}): {whole:?}", sample.kind));
            }
        }
    }
    assert!(leaked.is_empty(), "{} of {}: {leaked:#?}", leaked.len(), 3 * samples.len());
}

#[test]
fn redaction_of_hostile_texts_terminates() {
    for piece in [
        "token=",
        "token=a1",
        "sk-",
        "eyJ.",
        "AIza",
        "://a:@",
        "-----BEGIN PRIVATE KEY-----",
        "\x1b[1;",
    ] {
        let _ = redact(&piece.repeat(300_000 / piece.len()));
    }
}

#[test]
fn quoted_password_is_redacted_completely() {
    let text = r#"{"password": "s3cretA1 and more", "hint": "Password: \"must be long!\""}"#;
    let redacted = r#"{"password": "[redacted:assigned]", "hint": "Password: \"must be long!\""}"#;
    assert_eq!(redact(text), redacted);
}

#[test]
fn streams_accept_invalid_utf8() {
    let mut stream = redactor().stream();
    let mut out = stream.push(b"a\xff\xc3");
    out += &stream.push(b"\xa9\xe2\x82\n");
    out += &stream.push(b"\xe2\x82");
    out += &stream.finish();
    assert_eq!(out, "a\u{fffd}é\u{fffd}\n\u{fffd}");
    assert_eq!(stream.push(b"new\n"), "new\n");
}

proptest! {
    #[test]
    fn streamed_and_complete_redaction_agree(
        picks in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(&[" ", "\n", "\"", "é", ": ", "=", "", "a"][..])),
            0..8,
        ),
        sizes in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let samples = samples();
        let text: String = picks.iter().map(|(pick, glue)| pick.get(&samples).clone() + glue).collect();
        let whole = redactor().redact(&text).into_owned();
        prop_assert!(!whole.contains("hunter2-horse") && !whole.contains("second line of it"));
        let mut stream = redactor().stream();
        let (mut out, mut rest) = (String::new(), text.as_bytes());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            out += &stream.push(piece);
            rest = after;
        }
        out += &stream.finish();
        prop_assert_eq!(out, whole.as_str());
        for least in sizes {
            let redactor = redactor();
            let beginning = redactor.redact_beginning(&text, least);
            prop_assert!(whole.starts_with(&*beginning));
            prop_assert!(beginning.len() > least || *beginning == *whole);
        }
    }

    #[test]
    fn ids_and_hashes_are_not_redacted(bytes in prop::collection::vec(any::<u8>(), 32), upper: bool) {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let crockford = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
        let ulid: String = bytes[..26].iter().map(|b| crockford[usize::from(b % 32)] as char).collect();
        let uuid = format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]);
        let hex = if upper { hex.to_uppercase() } else { hex };
        for id in [&hex[..], &hex[..40], &hex[..16], &ulid, &uuid] {
            for text in [id.to_owned(), format!("commit {id}"), format!("id={id}"), format!("\"hash\":\"{id}\"")] {
                prop_assert_eq!(redact(&text), text);
            }
        }
    }

    #[test]
    fn arbitrary_text_is_accepted(text in "(\\PC|\n|=|:|-----BEGIN |PRIVATE KEY-----|token|\"|\\\\){0,60}") {
        let _ = redact(&text);
    }
}
