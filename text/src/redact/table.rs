//! The table of tokens that are recognized by their prefix.
//!
//! No entry may match a hash, an id or a path, because these are common in reports.

/// A prefix and the format of the text after it.
pub(super) struct Shape {
    pub kind: &'static str,
    pub prefix: &'static str,
    /// Returns whether a byte may follow the prefix.
    pub tail: fn(u8) -> bool,
    /// Minimum number of bytes after the prefix.
    pub least: usize,
    /// Whether the prefix must begin a word, because it could also occur inside one.
    pub word: bool,
    /// A final check of the text after the prefix.
    pub check: fn(&str) -> bool,
}

fn alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn url_safe(byte: u8) -> bool {
    alnum(byte) || matches!(byte, b'_' | b'-')
}

fn dotted(byte: u8) -> bool {
    url_safe(byte) || byte == b'.'
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn hex_dashed(byte: u8) -> bool {
    hex(byte) || byte == b'-'
}

fn upper_dashed(byte: u8) -> bool {
    upper(byte) || byte == b'-'
}

fn base64(byte: u8) -> bool {
    alnum(byte) || matches!(byte, b'+' | b'/' | b'=')
}

fn base64_more(byte: u8) -> bool {
    base64(byte) || matches!(byte, b'_' | b'-')
}

fn path(byte: u8) -> bool {
    url_safe(byte) || matches!(byte, b'/' | b'@')
}

fn firebase(byte: u8) -> bool {
    url_safe(byte) || byte == b':'
}

fn asana(byte: u8) -> bool {
    hex(byte) || byte == b':'
}

fn clickup(byte: u8) -> bool {
    upper(byte) || byte == b'_'
}

fn telegram(byte: u8) -> bool {
    url_safe(byte) || byte == b':'
}

fn has_colon(tail: &str) -> bool {
    tail.split_once(':').is_some_and(|(before, after)| before.len() >= 6 && after.len() >= 20)
}

/// Returns whether `tail` completes `bot123456789:AA…`: a number, a colon and at least 34
/// characters.
fn is_telegram(tail: &str) -> bool {
    tail.split_once(':').is_some_and(|(number, key)| {
        (8..=11).contains(&number.len())
            && number.bytes().all(|b| b.is_ascii_digit())
            && key.len() >= 34
    })
}

/// Returns whether `tail` completes `patXXXXXXXXXXXXXX.`, followed by at least 64 hexadecimal
/// digits.
fn is_airtable(tail: &str) -> bool {
    tail.split_once('.')
        .is_some_and(|(id, key)| id.len() == 14 && key.len() >= 64 && key.bytes().all(hex))
}

fn is_thirty_two(tail: &str) -> bool {
    tail.len() == 32
}

fn any(_: &str) -> bool {
    true
}

fn has_digit(tail: &str) -> bool {
    tail.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns whether `tail` contains an uninterrupted run of at least 20 characters with both letters
/// and digits, which distinguishes a key from words joined with hyphens.
fn has_long_piece(tail: &str) -> bool {
    tail.split(['-', '_']).any(|piece| {
        piece.len() >= 20 && has_digit(piece) && piece.bytes().any(|b| !b.is_ascii_digit())
    })
}

fn is_aws_id(tail: &str) -> bool {
    tail.len() == 16
}

/// Returns whether `tail` completes `header.payload.signature`. The payload of a detached token is
/// empty.
fn is_jwt(tail: &str) -> bool {
    let mut parts = tail.split('.');
    let header = parts.next().is_some_and(|part| part.len() >= 10);
    let payload = parts.next().is_some_and(|part| part.len() >= 10 || part.is_empty());
    header && payload && parts.next().is_some_and(|part| part.len() >= 10)
}

const fn shape(
    kind: &'static str,
    prefix: &'static str,
    tail: fn(u8) -> bool,
    least: usize,
) -> Shape {
    Shape { kind, prefix, tail, least, word: false, check: any }
}

const fn word(
    kind: &'static str,
    prefix: &'static str,
    tail: fn(u8) -> bool,
    least: usize,
    check: fn(&str) -> bool,
) -> Shape {
    Shape { kind, prefix, tail, least, word: true, check }
}

/// The known shapes. If several match, the first one is used.
pub(super) const SHAPES: &[Shape] = &[
    word("aws-key", "AKIA", upper, 16, is_aws_id),
    word("aws-key", "ASIA", upper, 16, is_aws_id),
    word("aws-key", "ABIA", upper, 16, is_aws_id),
    word("aws-key", "ACCA", upper, 16, is_aws_id),
    word("aws-bedrock-key", "ABSK", base64, 100, has_digit),
    shape("github-token", "ghp_", alnum, 30),
    shape("github-token", "gho_", alnum, 30),
    shape("github-token", "ghs_", alnum, 30),
    shape("github-token", "ghu_", alnum, 30),
    shape("github-token", "ghr_", alnum, 30),
    shape("github-token", "github_pat_", url_safe, 22),
    shape("gitlab-token", "glpat-", dotted, 20),
    shape("gitlab-token", "gldt-", url_safe, 20),
    shape("gitlab-token", "glft-", url_safe, 20),
    shape("gitlab-token", "glsoat-", url_safe, 20),
    shape("gitlab-token", "glrt-", dotted, 20),
    shape("gitlab-token", "glcbt-", url_safe, 20),
    shape("gitlab-token", "glptt-", alnum, 40),
    shape("gitlab-token", "glimt-", url_safe, 25),
    shape("gitlab-token", "glagent-", url_safe, 50),
    shape("gitlab-token", "gloas-", alnum, 64),
    word("gitlab-token", "GR1348941", url_safe, 20, any),
    shape("anthropic-key", "sk-ant-", url_safe, 20),
    word("openai-key", "sk-proj-", url_safe, 20, has_digit),
    word("openai-key", "sk-svcacct-", url_safe, 20, has_digit),
    word("openai-key", "sk-admin-", url_safe, 20, has_digit),
    word("openrouter-key", "sk-or-v1-", hex, 32, has_digit),
    word("openai-key", "sk-", url_safe, 20, has_long_piece),
    word("perplexity-key", "pplx-", alnum, 32, has_digit),
    word("groq-key", "gsk_", alnum, 40, has_digit),
    word("xai-key", "xai-", alnum, 60, has_digit),
    word("replicate-token", "r8_", alnum, 35, has_digit),
    word("nvidia-key", "nvapi-", url_safe, 40, has_digit),
    word("langsmith-key", "lsv2_pt_", url_safe, 32, has_digit),
    word("langsmith-key", "lsv2_sk_", url_safe, 32, has_digit),
    word("huggingface-token", "hf_", alnum, 30, any),
    word("huggingface-token", "api_org_", alnum, 30, any),
    word("slack-token", "xoxa-", url_safe, 10, has_digit),
    word("slack-token", "xoxb-", url_safe, 10, has_digit),
    word("slack-token", "xoxc-", url_safe, 10, has_digit),
    word("slack-token", "xoxd-", url_safe, 10, has_digit),
    word("slack-token", "xoxe-", url_safe, 10, has_digit),
    word("slack-token", "xoxe.", dotted, 10, has_digit),
    word("slack-token", "xoxo-", url_safe, 10, has_digit),
    word("slack-token", "xoxp-", url_safe, 10, has_digit),
    word("slack-token", "xoxr-", url_safe, 10, has_digit),
    word("slack-token", "xoxs-", url_safe, 10, has_digit),
    word("slack-token", "xapp-", url_safe, 10, has_digit),
    shape("slack-webhook", "hooks.slack.com/services/", path, 30),
    shape("slack-webhook", "hooks.slack.com/workflows/", path, 30),
    shape("discord-webhook", "discord.com/api/webhooks/", path, 40),
    shape("discord-webhook", "discordapp.com/api/webhooks/", path, 40),
    shape("teams-webhook", "webhook.office.com/webhookb2/", path, 60),
    word("google-key", "AIza", url_safe, 35, any),
    word("google-token", "ya29.", dotted, 20, has_digit),
    word("google-secret", "GOCSPX-", url_safe, 20, any),
    word("google-refresh-token", "1//0", url_safe, 40, has_digit),
    word("firebase-key", "AAAA", firebase, 140, has_colon),
    word("jwt", "eyJ", dotted, 22, is_jwt),
    word("onepassword-token", "ops_eyJ", base64, 100, any),
    word("onepassword-key", "A3-", upper_dashed, 32, has_digit),
    shape("npm-token", "npm_", alnum, 30),
    shape("pypi-token", "pypi-AgE", url_safe, 50),
    word("rubygems-key", "rubygems_", hex, 48, any),
    word("crates-io-token", "cio", alnum, 32, has_digit),
    word("nuget-key", "oy2", lower, 43, has_digit),
    word("clojars-token", "CLOJARS_", alnum, 60, any),
    word("readme-key", "rdme_", alnum, 70, any),
    word("docker-token", "dckr_pat_", url_safe, 20, any),
    word("docker-token", "dckr_oat_", url_safe, 20, any),
    word("jfrog-key", "AKCp", alnum, 60, has_digit),
    shape("stripe-key", "sk_live_", alnum, 10),
    shape("stripe-key", "rk_live_", alnum, 10),
    shape("stripe-key", "sk_prod_", alnum, 10),
    shape("stripe-key", "rk_prod_", alnum, 10),
    word("stripe-key", "sk_test_", alnum, 16, has_digit),
    word("stripe-key", "rk_test_", alnum, 16, has_digit),
    word("stripe-webhook", "whsec_", base64, 32, has_digit),
    word("square-key", "sq0atp-", url_safe, 22, any),
    word("square-key", "sq0csp-", url_safe, 43, any),
    word("square-key", "EAAA", url_safe, 56, has_digit),
    word("shopify-token", "shpat_", hex, 32, any),
    word("shopify-token", "shpca_", hex, 32, any),
    word("shopify-token", "shppa_", hex, 32, any),
    word("shopify-token", "shpss_", hex, 32, any),
    word("shippo-token", "shippo_live_", hex, 40, any),
    word("shippo-token", "shippo_test_", hex, 40, any),
    word("easypost-key", "EZAK", alnum, 54, any),
    word("easypost-key", "EZTK", alnum, 54, any),
    word("duffel-key", "duffel_live_", url_safe, 43, any),
    word("duffel-key", "duffel_test_", url_safe, 43, any),
    word("flutterwave-key", "FLWSECK-", alnum, 12, has_digit),
    word("flutterwave-key", "FLWSECK_TEST-", alnum, 12, any),
    word("flutterwave-key", "FLWPUBK_TEST-", alnum, 12, any),
    word("plaid-token", "access-production-", hex_dashed, 36, any),
    word("plaid-token", "access-development-", hex_dashed, 36, any),
    word("plaid-token", "access-sandbox-", hex_dashed, 36, any),
    word("sendgrid-key", "SG.", dotted, 60, any),
    word("sendinblue-key", "xkeysib-", url_safe, 70, any),
    word("mailchimp-transactional-key", "md-", alnum, 22, has_digit),
    word("twilio-key", "SK", hex, 32, is_thirty_two),
    word("postman-key", "PMAK-", hex_dashed, 50, any),
    word("pulumi-token", "pul-", hex, 40, any),
    word("terraform-token", "atlasv1.", url_safe, 60, any),
    word("vault-token", "hvs.", dotted, 24, any),
    word("vault-token", "hvb.", dotted, 24, any),
    word("vault-token", "hvr.", dotted, 24, any),
    word("doppler-token", "dp.pt.", alnum, 40, any),
    word("doppler-token", "dp.st.", dotted, 40, any),
    word("doppler-token", "dp.sa.", alnum, 40, any),
    word("doppler-token", "dp.ct.", alnum, 40, any),
    word("infracost-key", "ico-", alnum, 32, has_digit),
    word("prefect-key", "pnu_", alnum, 36, any),
    word("planetscale-token", "pscale_tkn_", dotted, 32, any),
    word("planetscale-token", "pscale_pw_", dotted, 32, any),
    word("planetscale-token", "pscale_oauth_", dotted, 32, any),
    word("neon-key", "napi_", alnum, 60, any),
    word("supabase-token", "sbp_", hex, 40, any),
    word("supabase-key", "sb_secret_", url_safe, 30, any),
    word("databricks-token", "dapi", hex, 32, any),
    word("digitalocean-token", "dop_v1_", hex, 64, any),
    word("digitalocean-token", "doo_v1_", hex, 64, any),
    word("digitalocean-token", "dor_v1_", hex, 64, any),
    word("heroku-key", "HRKU-", url_safe, 36, has_digit),
    word("fly-token", "fo1_", url_safe, 43, any),
    word("fly-token", "fm1r_", base64, 100, any),
    word("fly-token", "fm2_", base64, 100, any),
    word("scalingo-token", "tk-us-", url_safe, 48, any),
    word("render-key", "rnd_", alnum, 28, has_digit),
    word("vercel-token", "vcp_", alnum, 24, has_digit),
    word("netlify-token", "nfp_", alnum, 36, any),
    word("cloudflare-origin-key", "v1.0-", hex_dashed, 150, any),
    word("tailscale-key", "tskey-", url_safe, 20, has_digit),
    word("openshift-token", "sha256~", url_safe, 43, any),
    word("defined-networking-token", "dnkey-", url_safe, 50, any),
    word("alibaba-key", "LTAI", alnum, 16, has_digit),
    word("tencent-key", "AKID", alnum, 32, has_digit),
    word("yandex-key", "AQVN", url_safe, 35, any),
    word("yandex-token", "t1.9eu", dotted, 60, any),
    word("oracle-token", "ocid1.credential.", dotted, 60, any),
    word("grafana-token", "glc_", base64, 32, has_digit),
    word("grafana-token", "glsa_", url_safe, 41, any),
    word("grafana-key", "eyJrIjoi", base64, 70, any),
    word("newrelic-key", "NRAK-", alnum, 27, any),
    word("newrelic-key", "NRII-", url_safe, 32, any),
    word("newrelic-key", "NRJS-", hex, 19, any),
    word("dynatrace-token", "dt0c01.", dotted, 80, any),
    word("dynatrace-token", "dt0s01.", dotted, 80, any),
    word("sentry-token", "sntrys_", base64_more, 60, any),
    word("sentry-token", "sntryu_", hex, 64, any),
    word("honeycomb-key", "hcaik_", alnum, 58, any),
    word("posthog-key", "phx_", alnum, 40, any),
    word("sonar-token", "squ_", hex, 40, any),
    word("sonar-token", "sqp_", hex, 40, any),
    word("sonar-token", "sqa_", hex, 40, any),
    word("sourcegraph-token", "sgp_", url_safe, 40, has_digit),
    word("sourcegraph-token", "slk_", hex, 64, any),
    word("octopus-key", "API-", upper, 26, has_digit),
    word("harness-token", "pat.", dotted, 60, has_digit),
    word("harness-token", "sat.", dotted, 60, has_digit),
    word("buildkite-token", "bkua_", alnum, 40, any),
    word("circleci-token", "CCIPAT_", url_safe, 40, any),
    word("atlassian-token", "ATATT3", base64_more, 100, any),
    word("bitbucket-token", "ATBB", alnum, 32, has_digit),
    word("bitbucket-token", "ATCTT3", base64_more, 100, any),
    word("linear-key", "lin_api_", alnum, 40, any),
    word("linear-token", "lin_oauth_", alnum, 40, any),
    word("notion-token", "ntn_", alnum, 40, has_digit),
    word("notion-token", "secret_", alnum, 43, has_digit),
    word("airtable-token", "pat", dotted, 79, is_airtable),
    word("typeform-token", "tfp_", dotted, 59, any),
    word("figma-token", "figd_", url_safe, 40, any),
    word("frameio-token", "fio-u-", base64_more, 64, any),
    word("dropbox-token", "sl.", url_safe, 130, has_digit),
    word("asana-token", "1/", asana, 40, has_colon),
    word("clickup-token", "pk_", clickup, 40, has_digit),
    word("adafruit-key", "aio_", alnum, 28, has_digit),
    word("intra42-secret", "s-s4t2ud-", hex, 64, any),
    word("intra42-secret", "s-s4t2af-", hex, 64, any),
    word("settlemint-token", "sm_pat_", alnum, 16, any),
    word("settlemint-token", "sm_aat_", alnum, 16, any),
    word("settlemint-token", "sm_sat_", alnum, 16, any),
    word("facebook-token", "EAAM", alnum, 100, has_digit),
    word("facebook-token", "EAAC", alnum, 100, has_digit),
    word("mapbox-token", "sk.eyJ", dotted, 60, any),
    word("wakatime-key", "waka_", hex_dashed, 36, any),
    word("telegram-bot", "bot", telegram, 40, is_telegram),
    word("amazon-mws-token", "amzn.mws.", hex_dashed, 36, any),
    word("artifactory-token", "cmVmd", base64, 59, any),
    shape("age-key", "AGE-SECRET-KEY-1", upper, 50),
];
