//! The status of a server's answer, as error messages of agents name it.

/// The words before a status.
const BEFORE: [&str; 4] = ["status", "error", "code", "http"];

/// The HTTP status of an error that a message names: three digits from 400 on after `status`, `error`, `code` or `HTTP`, or in parentheses.
pub(crate) fn in_message(message: &str) -> Option<u16> {
    let lower = message.to_lowercase();
    let starts = lower.char_indices().filter(|(at, c)| {
        c.is_ascii_digit() && !lower[..*at].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '.')
    });
    starts
        .filter_map(|(at, _)| {
            let digits: &str = &lower[at..at + lower[at..].bytes().take_while(u8::is_ascii_digit).count()];
            let status: u16 = digits.parse().ok().filter(|status| (400..600).contains(status))?;
            let before = lower[..at].trim_end_matches([' ', ':', '=', '"', '_']);
            let is_named = BEFORE.iter().any(|word| before.ends_with(word));
            let is_in_parentheses = before.ends_with('(') && lower[at + digits.len()..].starts_with(')');
            (is_named || is_in_parentheses).then_some(status)
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_where_it_is_named() {
        for (message, status) in [
            ("exceeded retry limit, last status: 429 Too Many Requests", Some(429)),
            ("unexpected status 401 Unauthorized: busy, url: http://127.0.0.1:9503/v1/responses", Some(401)),
            ("API Error: Request rejected (429) · busy", Some(429)),
            ("Failed to authenticate. API Error: 401 busy", Some(401)),
            ("HTTP 503", Some(503)),
            ("{\"code\": 529}", Some(529)),
            ("connection to 10.0.0.429 refused", None),
            ("took 429 ms", None),
            ("exit code 1", None),
            ("port 443", None),
            ("", None),
        ] {
            assert_eq!(in_message(message), status, "{message}");
        }
    }
}
