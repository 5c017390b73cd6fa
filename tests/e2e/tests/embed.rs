//! The planner of the page "Embed Belay", as a reader would run it: taken from the page, with stubs generated from the contract, against
//! `belay serve` on its unix socket. It uses gRPC's C core, which Python shares with Ruby, PHP and C++.
//!
//! It needs Python and three packages from PyPI, which it installs below `target`. Without them it is skipped with the reason; with `CI` set it
//! fails instead.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use belay_e2e::Home;

const NAME: &str = "the_planner_of_the_page_hands_over_and_watches";
const PAGE: &str = include_str!("../../../docs/user-guide/embed.md");
const PACKAGES: [&str; 3] = ["grpcio==1.85.1", "grpcio-tools==1.85.1", "googleapis-common-protos==1.76.0"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let selected = filters.is_empty() || filters.iter().any(|filter| NAME.contains(filter.as_str()));
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{NAME}: test");
        return ExitCode::SUCCESS;
    }
    if !selected || arguments.iter().any(|argument| argument == "--ignored") {
        return totals(0, 0, 0);
    }
    println!("\nrunning 1 test");
    match python() {
        Err(reason) if env::var_os("CI").is_none() => {
            println!("test {NAME} ... ignored, {reason}");
            totals(0, 0, 1)
        }
        Err(reason) => {
            println!("test {NAME} ... FAILED\n\nCI skips nothing: {reason}");
            totals(0, 1, 0)
        }
        Ok(python) => match std::panic::catch_unwind(|| follow_the_page(&python)) {
            Ok(()) => {
                println!("test {NAME} ... ok");
                totals(1, 0, 0)
            }
            Err(_) => {
                println!("test {NAME} ... FAILED");
                totals(0, 1, 0)
            }
        },
    }
}

/// The closing line of cargo's own test programs, which `tests/run` adds up.
fn totals(passed: usize, failed: usize, ignored: usize) -> ExitCode {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {} filtered out\n",
        1 - passed - failed - ignored
    );
    ExitCode::from(u8::from(failed > 0))
}

/// An interpreter with the packages, or why it is not available.
fn python() -> Result<PathBuf, String> {
    let folder = root().join("target/tools/embed-python");
    let python = folder.join("bin/python");
    let has_packages = |python: &Path| {
        let import = "import grpc, grpc_tools, google.api.resource_pb2, sys; sys.exit(grpc.__version__ != '1.85.1')";
        Command::new(python).args(["-c", import]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if has_packages(&python) {
        return Ok(python);
    }
    let run = |command: &mut Command, what: &str| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{what}: {}", said.trim().lines().next_back().unwrap_or("it said nothing")))
        }
        Err(error) => Err(format!("{what}: {error}")),
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), "python3 -m venv does not work")?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    // A registry that cannot be reached fails soon.
    let mut install = Command::new("timeout");
    install.args(["--kill-after=10", "300"]).arg(&python).args(pip).args(PACKAGES);
    install.env("PIP_DEFAULT_TIMEOUT", "15").env("PIP_RETRIES", "1");
    run(&mut install, "grpcio cannot be installed from PyPI")?;
    Ok(python)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn follow_the_page(python: &Path) {
    let home = Home::new();
    let planner = PAGE.split_once("```python\n").and_then(|(_, rest)| rest.split_once("```")).expect("a program").0;
    assert!(planner.lines().count() <= 55, "the page promises a short program");
    home.file("planner.py", planner);
    fs::create_dir(home.path("gen")).unwrap();
    fs::create_dir(home.path("work")).unwrap();
    let protos: Vec<PathBuf> = fs::read_dir(root().join("proto/belay/v1"))
        .unwrap()
        .map(|entry| Path::new("proto/belay/v1").join(entry.unwrap().file_name()))
        .collect();
    let out = home.path("gen").display().to_string();
    let generated = Command::new(python)
        .args(["-m", "grpc_tools.protoc", "-I", "proto"])
        .args([format!("--python_out={out}"), format!("--grpc_python_out={out}")])
        .args(&protos)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(generated.status.success(), "{}", String::from_utf8_lossy(&generated.stderr));

    let _server = home.serve();
    let plan = |request_id: &str| {
        let run = Command::new(python)
            .args(["planner.py", home.state().join("executor.sock").to_str().unwrap(), "work", request_id])
            .env("PYTHONPATH", "gen")
            .current_dir(home.path(""))
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    let first = plan("first-try");
    assert!(first.contains("11 execution_finished"), "{first}");
    assert!(first.contains(r#"read gave {"content":"Hello from a planner.\n""#), "{first}");
    assert_eq!(fs::read_to_string(home.path("work/greeting.txt")).unwrap(), "Hello from a planner.\n");
    assert_eq!(plan("first-try"), first, "asked twice with one request id, it is started once");
}
