//! The program `belay-convert`: its output, its files and its exit codes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_belay-convert")).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_plan_is_printed_and_what_is_left_out_is_named_beside_it() {
    let output = run(&[sample("github/ci.yml").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), fs::read_to_string(sample("github/ci.plan.yaml")).unwrap());
    let list = fs::read_to_string(sample("github/ci.left-out.txt")).unwrap();
    let first = format!("{} parts have no place in the plan, or another meaning:\n", list.lines().count());
    assert_eq!(text(&output.stderr), first.clone() + &list);
    // The user guide shows its beginning.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user-guide/converters.md");
    let shown: String = list.lines().take(3).map(|line| format!("{line}\n")).collect();
    assert!(fs::read_to_string(page).unwrap().contains(&(first + &shown)), "docs/user-guide/converters.md");
}

#[test]
fn a_file_gets_the_plan_as_its_name_says() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("order.json");
    let output =
        run(&[sample("conductor/order.json").to_str().unwrap(), "--from", "conductor", "-o", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
    let plan: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(plan["id"], "order");
}

#[test]
fn what_cannot_be_read_or_converted_fails() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str, content: &[u8]| {
        fs::write(folder.join(name), content).unwrap();
        folder.join(name).display().to_string()
    };
    let unknown = file("unknown.yaml", b"key: value\n");
    let tabs = file("tabs.yml", b"on: push\njobs:\n\ta: 1\n");
    let bytes = file("bytes.yml", b"\xff\xfe\x00");
    for (arguments, code, words) in [
        (vec![unknown.as_str()], 1, "name the format with --from"),
        (vec![&tabs], 1, "line 3"),
        (vec![&bytes], 1, "UTF-8"),
        (vec!["/no/such/file.yml"], 1, "No such file"),
        (vec![&tabs, "--from", "jenkins"], 2, "github"),
        (vec![], 2, "FILE"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(words) && output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}
