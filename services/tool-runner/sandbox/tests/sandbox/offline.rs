//! Package managers fail quickly and clearly without a network. The time limit of each command is the bound, and must not be needed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use belay_sandbox::{Mount, MountKind, NamespaceLauncher, Settings, Spec, Status};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, run_by},
};

pub(crate) const TESTS: &[Test] = tests![
    npm_fails_quickly,
    pip_fails_quickly,
    cargo_fails_quickly,
    go_fails_quickly,
    maven_fails_quickly,
    curl_fails_quickly
];

/// Far below the time for retries, and far above the start-up time on a slow machine.
const LIMIT: Duration = Duration::from_secs(100);

/// The script has to fail on its own, with one of these messages.
fn fails_soon(launcher: &NamespaceLauncher, fixture: &Fixture, script: &str, messages: &[&str]) {
    let mut spec = Spec::new("sh", ["-c", script], fixture.staged().0);
    spec.timeout = Some(LIMIT);
    let (outcome, printed) = run_by(launcher, spec);
    let output = format!("{}{}", printed.stdout.text(), printed.stderr.text());
    assert!(matches!(outcome.status, Status::Exited(1..)), "{:?}: {output}", outcome.status);
    assert!(messages.iter().any(|wanted| output.contains(wanted)), "{output}");
}

fn missing(programs: &[&str]) -> Option<Verdict> {
    let missing = programs.iter().find(|program| !Path::new(program).exists())?;
    Some(Verdict::Skipped(format!("{missing} is not installed")))
}

fn plain() -> NamespaceLauncher {
    NamespaceLauncher::new(Settings::default()).unwrap()
}

fn npm_fails_quickly() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/npm"]) {
        return skipped;
    }
    fails_soon(&plain(), &Fixture::new(), "npm install left-pad", &["ENOTCACHED"]);
    Verdict::Passed
}

fn pip_fails_quickly() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/pip3"]) {
        return skipped;
    }
    let script = "pip3 download --no-cache-dir --dest /tmp/wheels requests";
    fails_soon(&plain(), &Fixture::new(), script, &["Name or service not known", "name resolution"]);
    Verdict::Passed
}

fn cargo_fails_quickly() -> Verdict {
    // `cargo test` sets CARGO; otherwise cargo is not searched.
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).unwrap_or_default();
    let Some(toolchain) = cargo.parent().and_then(Path::parent).filter(|_| fs::metadata(&cargo).is_ok()) else {
        return Verdict::Skipped("this user cannot run cargo".to_owned());
    };
    let fixture = Fixture::new();
    fs::create_dir(fixture.workspace.join("src")).unwrap();
    fs::write(fixture.workspace.join("src/lib.rs"), "").unwrap();
    let manifest =
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nlibc = \"0.2\"\n";
    fs::write(fixture.workspace.join("Cargo.toml"), manifest).unwrap();
    let target = PathBuf::from("/opt/rust");
    let mount = Mount { source: toolchain.to_owned(), target: target.clone(), kind: MountKind::ReadOnly };
    let mut settings = Settings { mounts: vec![mount], ..Settings::default() };
    settings.path.push(target.join("bin"));
    let launcher = NamespaceLauncher::new(settings).unwrap();
    fails_soon(&launcher, &fixture, "cargo fetch", &["offline"]);
    fails_soon(&launcher, &fixture, "cargo add serde", &["could not be found in registry index"]);
    Verdict::Passed
}

fn go_fails_quickly() -> Verdict {
    if let Some(skipped) = missing(&["/usr/local/go/bin/go"]) {
        return skipped;
    }
    let fixture = Fixture::new();
    let module = "module example.org/x\n\ngo 1.16\n\nrequire golang.org/x/text v0.3.0\n";
    fs::write(fixture.workspace.join("go.mod"), module).unwrap();
    let mut settings = Settings::default();
    settings.path.push("/usr/local/go/bin".into());
    let launcher = NamespaceLauncher::new(settings).unwrap();
    fails_soon(&launcher, &fixture, "go mod download", &["GOPROXY=off"]);
    Verdict::Passed
}

fn maven_fails_quickly() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/mvn", "/usr/bin/java"]) {
        return skipped;
    }
    let fixture = Fixture::new();
    let project = "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>x</artifactId>\
        <version>1</version><dependencies><dependency><groupId>com.google.guava</groupId><artifactId>guava</artifactId>\
        <version>33.0.0-jre</version></dependency></dependencies></project>";
    fs::write(fixture.workspace.join("pom.xml"), project).unwrap();
    // Maven supports MAVEN_ARGS since 3.9; older ones fail to resolve the host just as quickly.
    fails_soon(&plain(), &fixture, "mvn -q compile", &["offline", "Unknown host", "Name or service not known"]);
    Verdict::Passed
}

fn curl_fails_quickly() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/curl"]) {
        return skipped;
    }
    fails_soon(&plain(), &Fixture::new(), "curl -sS https://example.org/", &["Could not resolve host"]);
    Verdict::Passed
}
