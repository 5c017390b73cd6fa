use super::{wire::Malformed, *};

static NODE: Message = Message {
    name: "test.Node",
    fields: &[
        Field { number: 1, name: "children", kind: Kind::Message(&NODE), is_list: true, oneof: None },
        Field { number: 2, name: "count", kind: Kind::Varint, is_list: false, oneof: None },
        Field { number: 3, name: "short", kind: Kind::Fixed32, is_list: true, oneof: None },
        Field { number: 4, name: "long", kind: Kind::Fixed64, is_list: true, oneof: None },
        Field { number: 5, name: "colors", kind: Kind::Enum(&COLOR), is_list: true, oneof: None },
        Field { number: 6, name: "color", kind: Kind::Enum(&COLOR), is_list: false, oneof: None },
        Field { number: 7, name: "choice", kind: Kind::Message(&CHOICE), is_list: false, oneof: None },
        Field { number: 300, name: "name", kind: Kind::Bytes, is_list: false, oneof: None },
    ],
    oneofs: &[],
};

static CHOICE: Message = Message {
    name: "test.Choice",
    fields: &[
        Field { number: 1, name: "left", kind: Kind::Varint, is_list: false, oneof: Some(0) },
        Field { number: 2, name: "right", kind: Kind::Message(&NODE), is_list: false, oneof: Some(0) },
        Field { number: 3, name: "note", kind: Kind::Bytes, is_list: false, oneof: None },
    ],
    oneofs: &["side"],
};

static COLOR: Values = Values { name: "test.Color", entries: &[(-2, "MINUS"), (0, "UNSET"), (1, "RED"), (7, "BLUE")] };

fn problem(bytes: &[u8]) -> Option<String> {
    walk(&NODE, bytes, 0).err().map(|refused| refused.to_string())
}

fn malformed(what: &Malformed) -> Option<String> {
    Some(format!("test.Node cannot be decoded: {what}"))
}

/// A field with a length before its content.
fn delimited(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 128, "one byte of length");
    [&[number << 3 | 2, length], content].concat()
}

const MINUS_TWO: [u8; 10] = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];

#[test]
fn what_is_known_passes() {
    let minus_two = [&[0x30][..], &MINUS_TWO].concat();
    let fine: &[&[u8]] = &[
        &[],
        &[0x10, 0x96, 0x01],
        // The fixed ones, alone and packed, also packed without any.
        &[0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0x22, 0],
        // Enums, alone and packed.
        &[0x28, 7, 0x2a, 3, 0, 1, 7],
        &minus_two,
        // Field 300, and a tag that is longer than it has to be.
        &[0xe2, 0x12, 2, b'h', b'i'],
        &[0x90, 0x80, 0x00, 5],
        &delimited(1, &delimited(1, &[0x10, 1])),
        &delimited(7, &[0x08, 0]),
        &delimited(7, &delimited(2, &[])),
    ];
    for bytes in fine {
        assert_eq!(problem(bytes), None, "{bytes:?}");
    }
}

#[test]
fn what_is_not_known_is_named_with_its_place() {
    let nested = [delimited(1, &[]), vec![0x10, 1], delimited(1, &delimited(7, &delimited(2, &[0x48, 1])))].concat();
    let minus_one = [&[0x30][..], &[0xff; 9], &[1]].concat();
    let beyond_32_bits = [0x30, 0x81, 0x80, 0x80, 0x80, 0x10];
    let cases: &[(&[u8], &str)] = &[
        (&[0x48, 1], "field 9 of test.Node is not known"),
        (&nested, "`children[1].choice.right`: field 9 of test.Node is not known"),
        (&[0x30, 3], "`color` has the value 3, which is not known in test.Color; known are `MINUS`, `RED`, `BLUE`"),
        (
            &[0x2a, 3, 0, 3, 7],
            "`colors` has the value 3, which is not known in test.Color; known are `MINUS`, `RED`, `BLUE`",
        ),
        (&minus_one, "`color` has the value -1, which is not known in test.Color; known are `MINUS`, `RED`, `BLUE`"),
        (
            &beyond_32_bits,
            "`color` has the value 4294967297, which is not known in test.Color; known are `MINUS`, `RED`, `BLUE`",
        ),
        (&delimited(7, &[]), "`choice`: set one of `left`, `right` (`side` of test.Choice)"),
        (
            &delimited(1, &delimited(7, &delimited(3, b"note"))),
            "`children[0].choice`: set one of `left`, `right` (`side` of test.Choice)",
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(problem(bytes).as_deref(), Some(*expected), "{bytes:?}");
    }
    let refused = walk(&NODE, &delimited(1, &[0x30, 3]), 0).unwrap_err();
    assert_eq!((refused.field().as_str(), refused.is_newer()), ("children[0].color", true));
    let refused = walk(&NODE, &delimited(1, &delimited(7, &[])), 0).unwrap_err();
    assert_eq!((refused.field().as_str(), refused.is_newer()), ("children[0].choice.side", false));
    let refused = walk(&NODE, &delimited(1, &[0x48, 1]), 0).unwrap_err();
    assert_eq!((refused.field().as_str(), refused.is_newer()), ("children[0]", true));
}

#[test]
fn hostile_bytes_are_malformed() {
    use Malformed::{Cut, LongNumber, Mismatch, Number, Type};
    let long_number = [&[0x10][..], &[0xff; 10]].concat();
    let more_than_64_bits = [&[0x10][..], &[0xff; 9], &[2]].concat();
    let huge_length = [&[0xe2, 0x12][..], &[0xff; 9], &[1]].concat();
    let huge_number = [0xf8, 0xff, 0xff, 0xff, 0x1f, 0];
    let cases: &[(&[u8], Malformed)] = &[
        (&[0x10], Cut),
        (&[0x10, 0x80], Cut),
        (&[0x80], Cut),
        (&long_number, LongNumber),
        (&more_than_64_bits, LongNumber),
        (&[0x1d, 1, 2, 3], Cut),
        (&[0x21, 1, 2, 3, 4, 5, 6, 7], Cut),
        (&[0x1a, 3, 1, 2, 3], Cut),
        (&[0x2a, 1, 0x80], Cut),
        (&[0xe2, 0x12, 3, b'h', b'i'], Cut),
        (&huge_length, Cut),
        (&[0x0b, 0x0c], Type(3)),
        (&[0x0c], Type(4)),
        (&[0x16], Type(6)),
        (&[0x17], Type(7)),
        (&[0x00, 0], Number(0)),
        (&huge_number, Number(1_073_741_823)),
        (&[0x12, 1, 1], Mismatch(2)),
        (&[0x08, 1], Mismatch(1)),
        (&[0x15, 1, 2, 3, 4], Mismatch(2)),
    ];
    for (bytes, expected) in cases {
        assert_eq!(problem(bytes), malformed(expected), "{bytes:?}");
    }
    assert_eq!(
        problem(&[0x0a, 1, 0x10]).as_deref(),
        Some("`children[0]`: test.Node cannot be decoded: the bytes end within a field")
    );
}

#[test]
fn messages_nested_too_deep_are_malformed() {
    let nested = |depth: usize| {
        (0..depth).fold(Vec::new(), |inner: Vec<u8>, _| {
            let mut outer = vec![0x0a];
            let mut length = inner.len();
            while length >= 0x80 {
                outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
                length >>= 7;
            }
            outer.push(u8::try_from(length).unwrap());
            [outer, inner].concat()
        })
    };
    assert_eq!(problem(&nested(MAX_DEPTH - 1)), None);
    for depth in [MAX_DEPTH, 10_000] {
        let problem = problem(&nested(depth)).unwrap();
        assert!(problem.ends_with("messages are nested too deep"), "{problem}");
    }
}
