use std::{fs, os::unix::net::UnixListener};

use super::*;
use crate::tools::tests::Ground;

async fn read(ground: &Ground, arguments: Value) -> Value {
    ground.call(&ReadFile, arguments).await.unwrap()
}

async fn refusal(ground: &Ground, arguments: Value) -> (String, String) {
    let refused = ground.call(&ReadFile, arguments).await.unwrap_err();
    (refused.reason, refused.message)
}

/// S2-FR-039.
#[tokio::test]
async fn it_gives_the_content() {
    let ground = Ground::with(&[("a.txt", "one\r\ntwo"), ("empty", ""), ("link", "-> a.txt")]);
    let whole = json!({"content": "one\r\ntwo", "encoding": "utf-8", "size_bytes": 8, "truncated": false});
    assert_eq!(read(&ground, json!({"path": "a.txt"})).await, whole);
    assert_eq!(read(&ground, json!({"path": "link"})).await, whole);
    let encoded = read(&ground, json!({"path": "a.txt", "encoding": "base64"})).await;
    assert_eq!(encoded, json!({"content": "b25lDQp0d28=", "encoding": "base64", "size_bytes": 8, "truncated": false}));
    assert_eq!(read(&ground, json!({"path": "empty"})).await["content"], "");
    assert_eq!(read(&ground, json!({"path": "empty", "start_line": 1})).await["content"], "");
}

#[tokio::test]
async fn it_gives_lines_and_their_numbers() {
    let ground = Ground::with(&[("a.txt", "one\ntwo\nthree\n")]);
    let lines = read(&ground, json!({"path": "a.txt", "start_line": 2, "end_line": 3, "line_numbers": true})).await;
    let expected = json!({
        "content": "2\ttwo\n3\tthree\n", "encoding": "utf-8", "size_bytes": 14, "truncated": false, "lines": {"start": 2, "end": 3},
    });
    assert_eq!(lines, expected);
    assert_eq!(read(&ground, json!({"path": "a.txt", "end_line": 1})).await["content"], "one\n");
    let none = read(&ground, json!({"path": "a.txt", "start_line": 9})).await;
    assert_eq!((&none["content"], none.get("lines")), (&json!(""), None));
}

#[tokio::test]
async fn it_gives_bytes_and_where_to_read_on() {
    let ground = Ground::with(&[("a.txt", "aéb")]);
    let first = read(&ground, json!({"path": "a.txt", "length": 2})).await;
    assert_eq!(
        (&first["content"], &first["next_offset"], &first["truncated"]),
        (&json!("a"), &json!(1), &json!(false))
    );
    let rest = read(&ground, json!({"path": "a.txt", "offset": 1})).await;
    assert_eq!((&rest["content"], rest.get("next_offset")), (&json!("éb"), None));
    assert_eq!(read(&ground, json!({"path": "a.txt", "offset": 99})).await["content"], "");
    assert_eq!(read(&ground, json!({"path": "a.txt", "offset": u64::MAX >> 1})).await["content"], "");
    assert_eq!(refusal(&ground, json!({"path": "a.txt", "offset": 2})).await.0, "NOT_TEXT");
    assert_eq!(refusal(&ground, json!({"path": "a.txt", "offset": 1, "length": 1})).await.0, "NOT_TEXT");
}

/// S2-NFR-010: no file is too large to be read in parts, and none is given in part without a word.
#[tokio::test]
async fn a_large_file_is_read_in_parts() {
    let ground = Ground::with(&[]);
    let lines: String = (0..200_000).map(|n| format!("line {n:06}\n")).collect();
    fs::write(ground.root.join("large"), &lines).unwrap();
    let (reason, message) = refusal(&ground, json!({"path": "large"})).await;
    assert!(reason == "FILE_TOO_LARGE" && message.contains("2400000 bytes"), "{message}");

    let mut together = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let part = read(&ground, json!({"path": "large", "offset": offset})).await;
        assert_eq!(part["truncated"].as_bool(), Some(part.get("next_offset").is_some()));
        together += part["content"].as_str().unwrap();
        offset = part["next_offset"].clone();
    }
    assert!(together == lines, "the parts are the whole");

    let late = read(&ground, json!({"path": "large", "start_line": 199_999})).await;
    assert_eq!(late["content"], "line 199998\nline 199999\n");
    let most = read(&ground, json!({"path": "large", "start_line": 1})).await;
    assert_eq!((most["content"].as_str().unwrap().len(), &most["truncated"]), (1 << 20, &json!(true)));

    // A hole has no end in sight, and is read no further than asked.
    fs::File::create(ground.root.join("hole")).unwrap().set_len(1 << 40).unwrap();
    let hole = read(&ground, json!({"path": "hole", "offset": 1_u64 << 39, "length": 3, "encoding": "base64"})).await;
    assert_eq!((&hole["content"], &hole["size_bytes"]), (&json!("AAAA"), &json!(1_u64 << 40)));
}

#[tokio::test]
async fn what_is_no_text_names_the_way_to_read_it() {
    let ground = Ground::with(&[]);
    fs::write(ground.root.join("binary"), [b'a', 0, 0xff, 0xfe]).unwrap();
    let (reason, message) = refusal(&ground, json!({"path": "binary"})).await;
    assert!(reason == "NOT_TEXT" && message.contains("encoding: base64"), "{message}");
    assert_eq!(refusal(&ground, json!({"path": "binary", "start_line": 1})).await.0, "NOT_TEXT");
    assert_eq!(read(&ground, json!({"path": "binary", "encoding": "base64"})).await["content"], "YQD//g==");
}

/// None of these may be waited for.
#[tokio::test]
async fn what_is_no_file_is_refused_at_once() {
    let ground = Ground::with(&[("folder/f", ""), ("circle", "-> circle"), ("gone", "-> nowhere")]);
    ground.fifo("pipe");
    let _socket = UnixListener::bind(ground.root.join("socket")).unwrap();
    // The one that gives zeros for ever; only root can make it.
    let zero = rustix::fs::makedev(1, 5);
    let (place, kind) = (ground.root.join("zero"), rustix::fs::FileType::CharacterDevice);
    let made = rustix::fs::mknodat(rustix::fs::CWD, place, kind, rustix::fs::Mode::RWXU, zero).is_ok();
    for (path, reason) in [
        (if made { "zero" } else { "pipe" }, "WRONG_FILE_TYPE"),
        ("folder", "WRONG_FILE_TYPE"),
        (".", "WRONG_FILE_TYPE"),
        ("pipe", "WRONG_FILE_TYPE"),
        ("socket", "WRONG_FILE_TYPE"),
        ("circle", "WRONG_FILE_TYPE"),
        ("folder/f/x", "WRONG_FILE_TYPE"),
        ("gone", "FILE_NOT_FOUND"),
        ("none", "FILE_NOT_FOUND"),
        ("none/x", "FILE_NOT_FOUND"),
    ] {
        assert_eq!(refusal(&ground, json!({"path": path})).await.0, reason, "{path}");
        assert_eq!(refusal(&ground, json!({"path": path, "start_line": 1})).await.0, reason, "{path}");
    }
}

#[tokio::test]
async fn arguments_that_contradict_each_other_are_refused() {
    let ground = Ground::with(&[("a", "x")]);
    for arguments in [
        json!({"path": "a", "start_line": 1, "offset": 0}),
        json!({"path": "a", "line_numbers": true, "length": 1}),
        json!({"path": "a", "start_line": 1, "encoding": "base64"}),
        json!({"path": "a", "start_line": 3, "end_line": 2}),
    ] {
        let (reason, message) = refusal(&ground, arguments).await;
        assert!(reason == "INVALID_ARGUMENTS" && message.starts_with("arguments"), "{message}");
    }
}

/// Whatever a writer does meanwhile, what comes back is text from the file, or a refusal.
#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_no_harm() {
    let ground = Ground::with(&[("a", "x")]);
    let place = ground.root.join("a");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        let mut n = 0;
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {
            n += 1;
            let content = "y\n".repeat(n % 1_000_000);
            fs::write(&place, content).unwrap();
            fs::remove_file(&place).unwrap();
        }
    });
    for _ in 0..200 {
        for arguments in [json!({"path": "a"}), json!({"path": "a", "start_line": 1})] {
            match ground.call(&ReadFile, arguments).await {
                Ok(result) => assert!(result["content"].as_str().unwrap().chars().all(|c| "xy\n".contains(c))),
                Err(failure) => {
                    assert!(["FILE_NOT_FOUND", "FILE_TOO_LARGE"].contains(&failure.reason.as_str()), "{failure:?}")
                }
            }
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}
