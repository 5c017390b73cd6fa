//! The names that denote a secret.

/// The suffixes of secrets' names, in lower case and without separators.
const ENDINGS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "authkey",
    "accountkey",
    "masterkey",
    "sharedkey",
    "signingkey",
    "encryptionkey",
    "subscriptionkey",
    "licensekey",
    "authorization",
    "connectionstring",
    "cookie",
];

/// Whole names of secrets, whose suffixes alone are not specific.
const WHOLE: &[&str] = &["pass", "dbpass", "smtppass", "passcode", "cookies", "secrets", "otp", "apikeys", "passwords"];

/// Names with a secret's suffix that are not secrets: cursors, parser tokens, public keys.
const EXEMPT: &[&str] = &[
    "pagetoken",
    "continuationtoken",
    "continuetoken",
    "synctoken",
    "resumetoken",
    "cancellationtoken",
    "canceltoken",
    "nexttoken",
    "oldpwd",
    "eoftoken",
    "padtoken",
    "bostoken",
    "eostoken",
    "unktoken",
    "stoptoken",
    "publicaccesskey",
    "endtoken",
    "starttoken",
    "currenttoken",
    "prevtoken",
    "lasttoken",
    "tokenstoken",
];

/// Whether a member with this name is a secret, whatever its value.
pub(crate) fn is_secret(name: &str) -> bool {
    let plain = plain(name);
    let named = WHOLE.contains(&plain.as_str()) || ENDINGS.iter().any(|ending| plain.ends_with(ending));
    named && !is_exempt(&plain)
}

/// Whether the name only looks like a secret's.
pub(crate) fn is_exempt(name: &str) -> bool {
    let plain = plain(name);
    EXEMPT.iter().any(|exempt| plain.ends_with(exempt))
}

/// Whether it is the name of a working directory: `PWD`.
pub(crate) fn is_directory(name: &str) -> bool {
    ["pwd", "oldpwd", "initcwd"].contains(&plain(name).as_str())
}

/// Whether the argument is a flag that takes a secret: `--password`.
pub(crate) fn is_secret_flag(argument: &str) -> bool {
    argument.strip_prefix('-').is_some_and(|name| !name.contains(['=', ' ']) && is_secret(name))
}

/// Whether any quoted text ends with the suffix of a secret's name. May return false positives, but no false negatives.
pub(crate) fn in_quotes(json: &[u8]) -> bool {
    let mut quotes = json.iter().enumerate().filter(|(_, byte)| **byte == b'"').map(|(at, _)| at);
    quotes.any(|at| may_end_secret(&json[..at]))
}

fn may_end_secret(name: &[u8]) -> bool {
    let letters = || name.iter().rev().filter(|byte| !b"_-. ".contains(byte)).skip_while(|byte| byte.is_ascii_digit());
    let Some(last) = letters().next().map(u8::to_ascii_lowercase) else { return false };
    ENDINGS.iter().chain(WHOLE).filter(|ending| ending.ends_with(last as char)).any(|ending| {
        let mut letters = letters();
        ending.bytes().rev().all(|wanted| letters.next().is_some_and(|letter| letter.eq_ignore_ascii_case(&wanted)))
    })
}

fn plain(name: &str) -> String {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name.chars().filter(|c| !['_', '-', '.', ' '].contains(c)).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_judged_by_how_it_ends() {
        let secret = [
            "password",
            "dbPassword",
            "DB_PASSWORD",
            "user.password",
            "api-key",
            "apiKey",
            "X-Api-Key",
            "access_token",
            "clientSecret",
            "aws_secret_access_key",
            "private_key",
            "password2",
            "credentials",
            "Authorization",
            "pass",
        ];
        for name in secret {
            assert!(is_secret(name), "{name}");
        }
        let plain = [
            "password_hint",
            "max_tokens",
            "tokens",
            "tokenizer",
            "token_type",
            "secretName",
            "secret_ref",
            "page_token",
            "nextPageToken",
            "key",
            "primary_key",
            "public_key",
            "keyboard",
            "passport",
            "compass",
            "path",
            "has_key",
            "",
        ];
        for name in plain {
            assert!(!is_secret(name), "{name}");
        }
        assert!(is_secret_flag("--db-password") && !is_secret_flag("--password=x") && !is_secret_flag("password"));
    }
}
