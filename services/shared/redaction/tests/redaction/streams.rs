//! Output in pieces is shown as the whole would be.

use std::sync::LazyLock;

use belay_redaction::{Redactor, Stream};
use proptest::prelude::*;

use crate::fixtures::{clean_lines, secret_lines};

fn in_pieces<'a>(redactor: &Redactor, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut stream = Stream::new(redactor.clone());
    let mut shown = Vec::new();
    for piece in pieces {
        shown.extend(stream.push(piece));
    }
    shown.extend(stream.finish());
    String::from_utf8(shown).unwrap()
}

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIFAKEfakeFAKEfake\nFAKEfakeFAKEfakeFAKE\n-----END PRIVATE KEY-----";

/// S2-FR-077: wherever the pieces end.
#[test]
fn a_secret_across_two_pieces_is_hidden() {
    let redactor = Redactor::new().with_literals(["several\nlines of it"]).unwrap();
    let text = format!("a token=hunter2abc b\n{KEY}\nx several\nlines of it y\ndone");
    let whole = redactor.redact_text(&text).text;
    assert!(!whole.contains("hunter2abc") && !whole.contains("lines of") && !whole.contains("fake"), "{whole}");
    for at in 0..=text.len() {
        let (first, second) = text.as_bytes().split_at(at);
        assert_eq!(in_pieces(&redactor, [first, second]), whole, "at {at}");
    }
    assert_eq!(in_pieces(&redactor, text.as_bytes().chunks(1)), whole);
}

/// S2-FR-077: what begins a line is seen there also when it is not the first.
#[test]
fn a_flag_at_the_beginning_of_any_line_hides_its_secret() {
    let redactor = Redactor::new();
    for text in ["--password hunter2", "x\n--password hunter2", "x\r\n--password hunter2\ny", "x\r-password hunter2"] {
        let shown = redactor.redact_text(text).text;
        assert!(!shown.contains("hunter2"), "{shown:?}");
        assert_eq!(in_pieces(&redactor, text.as_bytes().chunks(3)), shown);
    }
}

#[test]
fn a_whole_line_is_shown_at_once() {
    let mut stream = Stream::new(Redactor::new());
    assert_eq!(stream.push(b"compiling\nlin"), b"compiling\n");
    assert_eq!(stream.push(b"king 50 %\rlinking"), b"linking 50 %\r");
    assert_eq!(stream.finish(), b"linking");
}

/// Held-back text has a bound, and a secret of any length still goes.
#[test]
fn a_line_without_an_end_is_shown_in_time() {
    let redactor = Redactor::new();
    let mut stream = Stream::new(redactor.clone());
    let (mut pushed, mut shown) = (0, 0);
    for number in 0..40_000 {
        let piece = format!("{number} and ");
        pushed += piece.len();
        shown += stream.push(piece.as_bytes()).len();
        assert!(pushed - shown <= 64 * 1024, "{} bytes are held back", pushed - shown);
    }
    let long = format!("x {} token={}, y", "word ".repeat(20_000), "aB3".repeat(60_000));
    let shown = in_pieces(&redactor, long.as_bytes().chunks(4096));
    assert!(!shown.contains("aB3"), "{}", &shown[shown.len() - 200..]);
    assert!(shown.ends_with("token=[REDACTED], y"), "{}", &shown[shown.len() - 200..]);
}

#[test]
fn secrets_of_a_very_long_line_are_hidden_wherever_they_lie() {
    let redactor = Redactor::new();
    let token = format!("ghp_{}", "FAKEfake01".repeat(4));
    for offset in (0..48 * 1024).step_by(1021) {
        let text = format!("{}password=hunter2abc {token} {}", ". ".repeat(offset / 2), ". ".repeat(20_000));
        let shown = in_pieces(&redactor, text.as_bytes().chunks(3000));
        assert_eq!(shown, redactor.redact_text(&text).text, "offset {offset}");
        assert!(!shown.contains("hunter2") && !shown.contains("FAKE"));
    }
}

#[test]
fn a_key_without_an_end_is_not_waited_for_for_ever() {
    let redactor = Redactor::new();
    let text = format!("-----BEGIN PRIVATE KEY-----\n{}", "plain words after a lonely first line\n".repeat(2000));
    let mut stream = Stream::new(redactor.clone());
    let shown: usize = text.as_bytes().chunks(1000).map(|piece| stream.push(piece).len()).sum();
    assert!(text.len() - shown < 64 * 1024);
    assert_eq!(in_pieces(&redactor, text.as_bytes().chunks(1000)), redactor.redact_text(&text).text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pieces_of_any_size_are_shown_as_the_whole(
        lines in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..4), 1..20),
        sizes in prop::collection::vec(1_usize..300, 1..40),
    ) {
        static REDACTOR: LazyLock<Redactor> =
            LazyLock::new(|| Redactor::new().with_literals(["a value\nof two lines", "handed-out-1"]).unwrap());
        let redactor = &*REDACTOR;
        let (secrets, clean) = (secret_lines(), clean_lines());
        let pick = |(index, kind): &(prop::sample::Index, u8)| match kind {
            0 => clean[index.index(clean.len())].to_owned(),
            1 => KEY.to_owned(),
            2 => "x a value\nof two lines handed-out-1 €".to_owned(),
            _ => secrets[index.index(secrets.len())].written.clone(),
        };
        let text = lines.iter().map(pick).collect::<Vec<_>>().join("\n");
        let whole = redactor.redact_text(&text).text;
        let mut sizes = sizes.iter().cycle();
        let mut rest = text.as_bytes();
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(in_pieces(redactor, pieces), whole);
    }
}
