//! Package managers that miss the network say so, and soon. Each command's own time limit is the bound: it must not be needed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use belay_sandbox::{Mount, MountKind, NamespaceLauncher, Settings, Spec, Status};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Room, run_by},
};

pub(crate) const TESTS: &[Test] =
    tests![npm_says_that_it_is_offline, pip_says_it, cargo_says_it, go_says_it, maven_says_it, curl_says_it];

/// Far below what each of them would spend on trying again, and far above what a slow machine takes to start them.
const LIMIT: Duration = Duration::from_secs(100);

/// The script has to end by itself, with a failure that says one of these.
fn fails_soon(launcher: &NamespaceLauncher, room: &Room, script: &str, says: &[&str]) {
    let mut spec = Spec::new("sh", ["-c", script], room.staged().0);
    spec.wall = Some(LIMIT);
    let (outcome, output) = run_by(launcher, spec);
    let said = format!("{}{}", output.stdout.text(), output.stderr.text());
    assert!(matches!(outcome.status, Status::Exited(1..)), "{:?}: {said}", outcome.status);
    assert!(says.iter().any(|wanted| said.contains(wanted)), "{said}");
}

fn missing(programs: &[&str]) -> Option<Verdict> {
    let missing = programs.iter().find(|program| !Path::new(program).exists())?;
    Some(Verdict::Skipped(format!("there is no {missing}")))
}

fn plain() -> NamespaceLauncher {
    NamespaceLauncher::new(Settings::default()).unwrap()
}

fn npm_says_that_it_is_offline() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/npm"]) {
        return skipped;
    }
    fails_soon(&plain(), &Room::new(), "npm install left-pad", &["ENOTCACHED"]);
    Verdict::Passed
}

fn pip_says_it() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/pip3"]) {
        return skipped;
    }
    let script = "pip3 download --no-cache-dir --dest /tmp/wheels requests";
    fails_soon(&plain(), &Room::new(), script, &["Name or service not known", "name resolution"]);
    Verdict::Passed
}

fn cargo_says_it() -> Verdict {
    // `cargo test` says which one runs it; without, none is looked for.
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).unwrap_or_default();
    let Some(toolchain) = cargo.parent().and_then(Path::parent).filter(|_| fs::metadata(&cargo).is_ok()) else {
        return Verdict::Skipped("there is no cargo that this user may run".to_owned());
    };
    let room = Room::new();
    fs::create_dir(room.workspace.join("src")).unwrap();
    fs::write(room.workspace.join("src/lib.rs"), "").unwrap();
    let manifest =
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nlibc = \"0.2\"\n";
    fs::write(room.workspace.join("Cargo.toml"), manifest).unwrap();
    let target = PathBuf::from("/opt/rust");
    let mount = Mount { source: toolchain.to_owned(), target: target.clone(), kind: MountKind::ReadOnly };
    let mut settings = Settings { mounts: vec![mount], ..Settings::default() };
    settings.path.push(target.join("bin"));
    let launcher = NamespaceLauncher::new(settings).unwrap();
    fails_soon(&launcher, &room, "cargo fetch", &["offline"]);
    fails_soon(&launcher, &room, "cargo add serde", &["could not be found in registry index"]);
    Verdict::Passed
}

fn go_says_it() -> Verdict {
    if let Some(skipped) = missing(&["/usr/local/go/bin/go"]) {
        return skipped;
    }
    let room = Room::new();
    let module = "module example.org/x\n\ngo 1.16\n\nrequire golang.org/x/text v0.3.0\n";
    fs::write(room.workspace.join("go.mod"), module).unwrap();
    let mut settings = Settings::default();
    settings.path.push("/usr/local/go/bin".into());
    let launcher = NamespaceLauncher::new(settings).unwrap();
    fails_soon(&launcher, &room, "go mod download", &["GOPROXY=off"]);
    Verdict::Passed
}

fn maven_says_it() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/mvn", "/usr/bin/java"]) {
        return skipped;
    }
    let room = Room::new();
    let project = "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>x</artifactId>\
        <version>1</version><dependencies><dependency><groupId>com.google.guava</groupId><artifactId>guava</artifactId>\
        <version>33.0.0-jre</version></dependency></dependencies></project>";
    fs::write(room.workspace.join("pom.xml"), project).unwrap();
    // Maven knows the variable for its arguments from 3.9 on; before, it finds no name server, which is as soon.
    fails_soon(&plain(), &room, "mvn -q compile", &["offline", "Unknown host", "Name or service not known"]);
    Verdict::Passed
}

fn curl_says_it() -> Verdict {
    if let Some(skipped) = missing(&["/usr/bin/curl"]) {
        return skipped;
    }
    fails_soon(&plain(), &Room::new(), "curl -sS https://example.org/", &["Could not resolve host"]);
    Verdict::Passed
}
