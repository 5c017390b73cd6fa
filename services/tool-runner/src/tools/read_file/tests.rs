use std::{fs, os::unix::net::UnixListener};

use super::*;
use crate::tools::tests::TestWorkspace;

async fn read(workspace: &TestWorkspace, arguments: Value) -> Value {
    workspace.call(&ReadFile, arguments).await.unwrap()
}

async fn refusal(workspace: &TestWorkspace, arguments: Value) -> (String, String) {
    let refused = workspace.call(&ReadFile, arguments).await.unwrap_err();
    (refused.reason, refused.message)
}

/// S2-FR-039.
#[tokio::test]
async fn it_returns_the_content() {
    let workspace = TestWorkspace::with(&[("a.txt", "one\r\ntwo"), ("empty", ""), ("link", "-> a.txt")]);
    let whole = json!({"content": "one\r\ntwo", "encoding": "utf-8", "size_bytes": 8, "truncated": false});
    assert_eq!(read(&workspace, json!({"path": "a.txt"})).await, whole);
    assert_eq!(read(&workspace, json!({"path": "link"})).await, whole);
    let encoded = read(&workspace, json!({"path": "a.txt", "encoding": "base64"})).await;
    assert_eq!(encoded, json!({"content": "b25lDQp0d28=", "encoding": "base64", "size_bytes": 8, "truncated": false}));
    assert_eq!(read(&workspace, json!({"path": "empty"})).await["content"], "");
    assert_eq!(read(&workspace, json!({"path": "empty", "start_line": 1})).await["content"], "");
}

#[tokio::test]
async fn it_returns_lines_with_numbers() {
    let workspace = TestWorkspace::with(&[("a.txt", "one\ntwo\nthree\n")]);
    let lines = read(&workspace, json!({"path": "a.txt", "start_line": 2, "end_line": 3, "line_numbers": true})).await;
    let expected = json!({
        "content": "2\ttwo\n3\tthree\n", "encoding": "utf-8", "size_bytes": 14, "truncated": false, "lines": {"start": 2, "end": 3},
    });
    assert_eq!(lines, expected);
    assert_eq!(read(&workspace, json!({"path": "a.txt", "end_line": 1})).await["content"], "one\n");
    let none = read(&workspace, json!({"path": "a.txt", "start_line": 9})).await;
    assert_eq!((&none["content"], none.get("lines")), (&json!(""), None));
}

#[tokio::test]
async fn it_returns_bytes_and_the_next_offset() {
    let workspace = TestWorkspace::with(&[("a.txt", "aéb")]);
    let first = read(&workspace, json!({"path": "a.txt", "length": 2})).await;
    assert_eq!(
        (&first["content"], &first["next_offset"], &first["truncated"]),
        (&json!("a"), &json!(1), &json!(false))
    );
    let rest = read(&workspace, json!({"path": "a.txt", "offset": 1})).await;
    assert_eq!((&rest["content"], rest.get("next_offset")), (&json!("éb"), None));
    assert_eq!(read(&workspace, json!({"path": "a.txt", "offset": 99})).await["content"], "");
    assert_eq!(read(&workspace, json!({"path": "a.txt", "offset": u64::MAX >> 1})).await["content"], "");
    assert_eq!(refusal(&workspace, json!({"path": "a.txt", "offset": 2})).await.0, "NOT_TEXT");
    assert_eq!(refusal(&workspace, json!({"path": "a.txt", "offset": 1, "length": 1})).await.0, "NOT_TEXT");
}

/// S2-NFR-010: a file of any size can be read in parts, and truncation is always reported.
#[tokio::test]
async fn a_large_file_is_read_in_parts() {
    let workspace = TestWorkspace::with(&[]);
    let lines: String = (0..200_000).map(|n| format!("line {n:06}\n")).collect();
    fs::write(workspace.root.join("large"), &lines).unwrap();
    let (reason, message) = refusal(&workspace, json!({"path": "large"})).await;
    assert!(reason == "FILE_TOO_LARGE" && message.contains("2400000 bytes"), "{message}");

    let mut together = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let part = read(&workspace, json!({"path": "large", "offset": offset})).await;
        assert_eq!(part["truncated"].as_bool(), Some(part.get("next_offset").is_some()));
        together += part["content"].as_str().unwrap();
        offset = part["next_offset"].clone();
    }
    assert!(together == lines, "the parts are the whole");

    let late = read(&workspace, json!({"path": "large", "start_line": 199_999})).await;
    assert_eq!(late["content"], "line 199998\nline 199999\n");
    let most = read(&workspace, json!({"path": "large", "start_line": 1})).await;
    assert_eq!((most["content"].as_str().unwrap().len(), &most["truncated"]), (1 << 20, &json!(true)));

    // A sparse file is read no further than requested.
    fs::File::create(workspace.root.join("hole")).unwrap().set_len(1 << 40).unwrap();
    let hole =
        read(&workspace, json!({"path": "hole", "offset": 1_u64 << 39, "length": 3, "encoding": "base64"})).await;
    assert_eq!((&hole["content"], &hole["size_bytes"]), (&json!("AAAA"), &json!(1_u64 << 40)));
}

#[tokio::test]
async fn a_binary_file_suggests_base64() {
    let workspace = TestWorkspace::with(&[]);
    fs::write(workspace.root.join("binary"), [b'a', 0, 0xff, 0xfe]).unwrap();
    let (reason, message) = refusal(&workspace, json!({"path": "binary"})).await;
    assert!(reason == "NOT_TEXT" && message.contains("encoding: base64"), "{message}");
    assert_eq!(refusal(&workspace, json!({"path": "binary", "start_line": 1})).await.0, "NOT_TEXT");
    assert_eq!(read(&workspace, json!({"path": "binary", "encoding": "base64"})).await["content"], "YQD//g==");
}

/// None of these may block.
#[tokio::test]
async fn only_regular_files_are_read() {
    let workspace = TestWorkspace::with(&[("folder/f", ""), ("circle", "-> circle"), ("gone", "-> nowhere")]);
    workspace.fifo("pipe");
    let _socket = UnixListener::bind(workspace.root.join("socket")).unwrap();
    // /dev/zero; only root can create it.
    let zero = rustix::fs::makedev(1, 5);
    let (place, kind) = (workspace.root.join("zero"), rustix::fs::FileType::CharacterDevice);
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
        assert_eq!(refusal(&workspace, json!({"path": path})).await.0, reason, "{path}");
        assert_eq!(refusal(&workspace, json!({"path": path, "start_line": 1})).await.0, reason, "{path}");
    }
}

#[tokio::test]
async fn arguments_that_contradict_each_other_are_refused() {
    let workspace = TestWorkspace::with(&[("a", "x")]);
    for arguments in [
        json!({"path": "a", "start_line": 1, "offset": 0}),
        json!({"path": "a", "line_numbers": true, "length": 1}),
        json!({"path": "a", "start_line": 1, "encoding": "base64"}),
        json!({"path": "a", "start_line": 3, "end_line": 2}),
    ] {
        let (reason, message) = refusal(&workspace, arguments).await;
        assert!(reason == "INVALID_ARGUMENTS" && message.starts_with("arguments"), "{message}");
    }
}

/// Whatever a concurrent writer does, the result is content of the file or a failure.
#[tokio::test]
async fn a_file_may_change_while_it_is_read() {
    let workspace = TestWorkspace::with(&[("a", "x")]);
    let place = workspace.root.join("a");
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
            match workspace.call(&ReadFile, arguments).await {
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
