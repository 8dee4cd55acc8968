//! A sample of every kind of secret that the redactor recognizes, for tests.
//!
//! The samples are assembled from parts, so that secret scanners do not report this file.

use super::table::{SHAPES, Shape};

/// Letters and digits in an order that no format excludes.
const WORD: &str =
    "aB3xK9mQ2wE7rT5yU8iO1pL4sD6fG0hJ2kZ7vC9nX4bV1cM8qW3eR6tY5uI0oP2aS7dF9gH1jK4lZ6x";

/// Text that contains a secret.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The kind of secret.
    pub kind: String,
    /// The text before the secret. Some kinds are recognized by it.
    pub before: String,
    pub secret: String,
    /// The text after the secret.
    pub after: String,
}

impl Sample {
    /// Returns the secret within its surrounding text.
    pub fn text(&self) -> String {
        format!("{}{}{}", self.before, self.secret, self.after)
    }
}

/// Returns more than 200 samples: every known format, names with an assigned value, headers, URLs
/// and private keys.
pub fn all() -> Vec<Sample> {
    let mut all: Vec<Sample> = SHAPES.iter().map(of_shape).collect();
    let mut add = |kind: &str, before: &str, secret: &str, after: &str| {
        let [before, secret, after] = [before, secret, after].map(str::to_owned);
        all.push(Sample { kind: kind.to_owned(), before, secret, after });
    };
    for name in [
        "password",
        "passwd",
        "DB_PASSWORD",
        "db_pass",
        "secret",
        "client_secret",
        "api_key",
        "API-KEY",
        "apikey",
        "access_key",
        "AWS_SECRET_ACCESS_KEY",
        "access_token",
        "refresh_token",
        "auth_token",
        "GITHUB_TOKEN",
        "private_key",
        "encryption_key",
        "credentials",
    ] {
        add(name, &format!("{name}="), &WORD[..24], "");
        add(name, &format!("\"{name}\": \""), &WORD[24..48], "\"");
    }
    for scheme in ["Bearer", "Basic", "token"] {
        add("authorization", &format!("Authorization: {scheme} "), &WORD[..32], "");
    }
    for scheme in ["https", "postgres", "mysql", "amqp", "redis", "mongodb"] {
        add("url-password", &format!("{scheme}://user:"), &WORD[..20], "@host/path");
    }
    for kind in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "DSA PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ] {
        let body = [&WORD[..64], &WORD[8..72], &WORD[4..30]].join("\n");
        let begin = format!("-----BEGIN {kind}-----\n");
        add(kind, &begin, &body, &format!("\n-----END {kind}-----"));
    }
    all
}

/// Builds a token of this shape that is as short as the shape's check permits.
pub(super) fn of_shape(shape: &Shape) -> Sample {
    let long = WORD.repeat(3);
    let hex: String = long.bytes().map(|byte| format!("{byte:02x}")).collect();
    let forms = [
        long.clone(),
        long.to_uppercase(),
        long.to_lowercase(),
        hex.clone(),
        format!("{}.{}.{WORD}", &WORD[..24], &WORD[8..40]),
        format!("{}.{hex}", &WORD[..14]),
        format!("123456789:{long}"),
        format!("{}:{hex}", &hex[..12]),
    ];
    for form in forms {
        let tail: String = form.chars().filter(|c| (shape.tail)(*c as u8)).collect();
        for length in shape.least..=tail.len() {
            if (shape.check)(&tail[..length]) {
                return Sample {
                    kind: format!("{} {}", shape.kind, shape.prefix),
                    before: String::new(),
                    secret: format!("{}{}", shape.prefix, &tail[..length]),
                    after: String::new(),
                };
            }
        }
    }
    panic!("no sample of {}", shape.prefix);
}
