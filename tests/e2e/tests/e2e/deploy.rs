//! The units in deploy/ match the programs, and separate the services.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use belay_e2e::{
    Client, Home, Person, Process, ProcessUser, Runner,
    belay::repository,
    binary,
    client::{name, serving},
    runner::reason,
};
use belay_proto::{
    gate_v1, runner_v1,
    v1::{self, Decision, approval::State, execution},
};
use tonic::Code;

const UNITS: [&str; 3] = ["belay-approval-gate", "belay-tool-runner", "belay-executor"];

fn unit_file(unit: &str) -> PathBuf {
    repository().join("deploy/systemd").join(unit).with_extension("service")
}

/// A host below a folder, on which each service has a user of its own where this test may give it one.
struct Host {
    root: PathBuf,
    is_root: bool,
}

impl Host {
    /// Users and groups that no machine has.
    const IDS: [(&str, u32); 5] = [
        ("belay-gate", 61_001),
        ("belay-runner", 61_002),
        ("belay-executor", 61_003),
        ("belay", 61_004),
        ("belay-services", 61_005),
    ];

    fn new(home: &Home, policy: &str) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let host = Self { root: home.path("host"), is_root };
        for folder in ["var/lib", "run", "etc/belay", "srv/belay/project"] {
            fs::create_dir_all(host.root.join(folder)).unwrap();
        }
        fs::write(host.root.join("etc/belay/policy.yaml"), policy).unwrap();
        fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        // What StateDirectory= and RuntimeDirectory= of the units make.
        for service in ["belay-gate", "belay-runner", "belay-executor"] {
            for (folder, mode) in [("var/lib", 0o700), ("run", 0o755)] {
                let path = host.root.join(folder).join(service);
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                host.give(&path, service);
            }
        }
        host.give(&host.root.join("srv/belay"), "belay-runner");
        host.give(&host.root.join("srv/belay/project"), "belay-runner");
        host
    }

    fn id(&self, name: &str) -> u32 {
        let found =
            Self::IDS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("user or group {name}"));
        if self.is_root { found.1 } else { rustix::process::geteuid().as_raw() }
    }

    fn give(&self, path: &Path, owner: &str) {
        if self.is_root {
            chown(path, Some(self.id(owner)), Some(self.id(owner))).unwrap();
        }
    }

    fn setting(unit: &str, key: &str) -> String {
        let path = unit_file(unit);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let prefix = format!("{key}=");
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap_or_else(|| panic!("{} says {key}", path.display())).to_owned()
    }

    /// The user of a unit, with its groups.
    fn user(&self, unit: &str) -> ProcessUser {
        let groups = Self::setting(unit, "SupplementaryGroups");
        ProcessUser {
            id: self.id(&Self::setting(unit, "User")),
            groups: groups.split(' ').map(|group| self.id(group)).collect(),
        }
    }

    /// The arguments of `belay` in a unit, with the places of a host put below this one's, and users and groups as their numbers.
    fn command_line(&self, unit: &str) -> Vec<String> {
        let line = Self::setting(unit, "ExecStart");
        let root = self.root.display();
        let mut words = line.split(' ').map(|word| {
            if Self::IDS.iter().any(|(known, _)| *known == word) {
                return self.id(word).to_string();
            }
            ["/var/lib/belay", "/run/belay", "/etc/belay", "/srv/belay"]
                .iter()
                .fold(word.to_owned(), |word, place| word.replace(place, &format!("{root}{place}")))
        });
        assert_eq!(words.next().as_deref(), Some("/usr/local/bin/belay"), "{unit}");
        words.collect()
    }

    fn start(&self, unit: &str) -> Process {
        let arguments = self.command_line(unit);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let [service, arguments @ ..] = words.as_slice() else { panic!("{unit} names a service") };
        let log = self.root.join(unit).with_extension("log");
        match self.is_root {
            true => Process::start_as(&self.user(unit), service, arguments, &log),
            false => Process::start(service, arguments, &log),
        }
    }

    fn socket(&self, service: &str, name: &str) -> PathBuf {
        self.root.join("run").join(service).join(name)
    }

    fn executor(&self) -> PathBuf {
        self.socket("belay-executor", "executor.sock")
    }

    fn gate(&self) -> PathBuf {
        self.socket("belay-gate", "gate.sock")
    }

    fn logs(&self) -> String {
        UNITS
            .iter()
            .map(|unit| fs::read_to_string(self.root.join(unit).with_extension("log")).unwrap_or_default())
            .collect()
    }

    /// Starts the three by their units' command lines, and waits until they serve.
    async fn serve(&self) -> [Process; 3] {
        // Building may take longer than the services have for their start.
        binary();
        let all = async {
            let gate = self.start("belay-approval-gate");
            serving(&self.gate(), "belay.v1.ApprovalService").await;
            let (runner, executor) = (self.start("belay-tool-runner"), self.start("belay-executor"));
            serving(&self.socket("belay-runner", "runner.sock"), "belay.runner.v1.ToolRunnerService").await;
            serving(&self.executor(), "belay.v1.ExecutorService").await;
            [gate, runner, executor]
        };
        let served = tokio::time::timeout(Duration::from_secs(60), all).await;
        served.unwrap_or_else(|_| panic!("they serve within a minute:\n{}", self.logs()))
    }
}

/// The units name each other's sockets, keys and flags correctly: started by their command lines, the three services carry out a plan.
#[tokio::test]
async fn the_units_of_systemd_start_services_that_work_together() {
    let home = Home::new();
    let policy = fs::read_to_string(repository().join("docs/examples/policy.yaml")).unwrap();
    let host = Host::new(&home, &policy);
    let _services = host.serve().await;
    let plan = home.file("plan.yaml", "id: p\nsteps: [{id: look, tool: list_directory, arguments: {path: .}}]\n");
    let address = |socket: PathBuf| format!("unix:{}", socket.display());
    let project = host.root.join("srv/belay/project").display().to_string();
    let (executor, gate) = (address(host.executor()), address(host.gate()));
    // The runner rejects every call until it has received the policy from the gate.
    let run = async {
        loop {
            let run = home.run(["run", &plan, "--server", &executor, "--gate", &gate, "--workspace", &project]);
            if run.code == 0 || !run.talk.contains("POLICY_MISSING") {
                return run;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let run = tokio::time::timeout(Duration::from_secs(60), run).await.expect("the runner gets a policy");
    assert_eq!(run.code, 0, "{run:?}\n{}", host.logs());
}

/// A plan whose only step needs approval before a file is written.
const ASKS: &str = "id: asks\nsteps: [{id: w, tool: write_file, arguments: {path: a.txt, content: new}}]\n";

/// B-05, B-19: with the units' users, the executor cannot read the gate's key, cannot decide, and gets no grant without an approval; approved calls
/// are carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_executor_gets_nothing_that_no_person_approved() {
    if !rustix::process::geteuid().is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: a_hostile_executor_gets_nothing_that_no_person_approved needs root and setpriv");
        return;
    }
    let home = Home::new();
    let host = Host::new(&home, "file_write: prompt\n");
    let _services = host.serve().await;

    let client = Client::new(&host.executor());
    client.start_in("asks", ASKS, &host.root.join("srv/belay/project")).await;
    let person = Person::at(&host.gate());
    let asked = person.question(&name("asks")).await;

    let as_user = |unit: &str, test: &str| {
        let mut command = Command::new("setpriv");
        command.args(host.user(unit).flags()).arg("--").arg(std::env::current_exe().unwrap());
        command.args([&format!("deploy::{test}"), "--exact", "--ignored", "--nocapture"]).env("HOST", &host.root);
        command.env("APPROVAL", &asked.name).env("DIGEST", &asked.subject_digest).env("CALL", &asked.call);
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        assert!(ended.status.success() && said.contains("1 passed"), "as {unit}:\n{said}");
    };
    as_user("belay-executor", "as_the_executor");
    as_user("belay-tool-runner", "as_the_runner");

    let now = person.approval_in(&name("asks"), State::Pending).await;
    assert_eq!(now.name, asked.name, "it still waits for a person");
    person.decide(&asked, Decision::Approve).await.unwrap();
    let picture = client.watch_to_the_end("asks").await;
    assert_eq!(picture.state(), Some(execution::State::Completed), "{}", host.logs());
    assert_eq!(fs::read_to_string(host.root.join("srv/belay/project/a.txt")).unwrap(), "new");
}

/// The input of this program when `a_hostile_executor_gets_nothing_that_no_person_approved` runs it as another user.
struct Attack {
    root: PathBuf,
    approval: String,
    digest: String,
    call: String,
}

impl Attack {
    fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name}: run by another test"));
        Self {
            root: variable("HOST").into(),
            approval: variable("APPROVAL"),
            digest: variable("DIGEST"),
            call: variable("CALL"),
        }
    }

    fn socket(&self, place: &str) -> PathBuf {
        self.root.join("run").join(place)
    }

    /// The gate's response when this user tries to decide at one of its sockets.
    async fn decide(&self, place: &str) -> (Code, String) {
        let request = v1::DecideApprovalRequest {
            name: self.approval.clone(),
            subject_digest: self.digest.clone(),
            decision: Decision::Approve.into(),
            reason: String::new(),
            ..Default::default()
        };
        let refused = Person::at(&self.socket(place)).raw().decide_approval(request).await;
        reason(&refused.expect_err("it does not decide"))
    }

    async fn grant(&self) -> (Code, String) {
        let request = gate_v1::GetGrantRequest { approval: self.approval.clone() };
        let refused = Person::at(&self.socket("belay-gate/service.sock")).as_service().get_grant(request).await;
        reason(&refused.expect_err("it gets no grant"))
    }

    fn reads_nothing_of(&self, services: &[&str]) {
        for service in services {
            let folder = self.root.join("var/lib").join(service);
            for name in ["", "gate.key", "seal.key", "gate.db", "journal.db", "ledger.db"] {
                let path = folder.join(name);
                let refused = fs::File::open(&path).expect_err("it is another service's");
                assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{}", path.display());
            }
        }
        assert!(fs::write(self.root.join("etc/belay/principals.json"), "{}").is_err(), "nobody adds himself");
    }
}

#[tokio::test]
#[ignore = "run as another user by a_hostile_executor_gets_nothing_that_no_person_approved"]
async fn as_the_executor() {
    let attack = Attack::from_environment();
    attack.reads_nothing_of(&["belay-gate", "belay-runner"]);
    let key =
        fs::read_to_string(attack.socket("belay-gate/gate.pub")).expect("the verification key is for all to read");
    assert_eq!(key.trim().len(), 64);
    assert_eq!(attack.decide("belay-gate/gate.sock").await, (Code::Unauthenticated, "UNAUTHENTICATED".into()));
    assert_eq!(attack.decide("belay-gate/service.sock").await, (Code::PermissionDenied, "NOT_A_PERSON".into()));
    assert_eq!(attack.grant().await, (Code::FailedPrecondition, "NOT_APPROVED".into()));
    let commit = runner_v1::CommitEffectRequest { name: attack.call.clone(), grant: None, fence: None };
    let runner = Runner::new(&attack.socket("belay-runner/runner.sock")).raw();
    let refused = runner.clone().commit_effect(commit).await.expect_err("nothing is committed");
    assert_eq!(reason(&refused), (Code::PermissionDenied, "GRANT_REFUSED".into()));
}

#[tokio::test]
#[ignore = "run as another user by a_hostile_executor_gets_nothing_that_no_person_approved"]
async fn as_the_runner() {
    let attack = Attack::from_environment();
    attack.reads_nothing_of(&["belay-gate", "belay-executor"]);
    assert_eq!(attack.decide("belay-gate/service.sock").await, (Code::PermissionDenied, "NOT_A_PERSON".into()));
    assert_eq!(attack.grant().await, (Code::PermissionDenied, "NOT_A_SERVICE".into()));
}

/// Each service has a user and a state directory of its own, and is hardened as far as it bears. In tenths, as `systemd-analyze` counts.
#[test]
fn the_units_are_hardened() {
    let settings = |key: &str| UNITS.map(|unit| Host::setting(unit, key));
    for key in ["User", "StateDirectory", "RuntimeDirectory"] {
        let [a, b, c] = settings(key);
        assert!(a != b && b != c && a != c, "{key}: {a}, {b}, {c}");
    }
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: the_units_are_hardened needs systemd-analyze");
        return;
    }
    // What is left at the runner is what its own sandbox needs: namespaces, mounts, an unmasked /proc.
    for (unit, most) in UNITS.into_iter().zip(["20", "40", "20"]) {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--offline=true", "--no-pager", "--threshold", most]).arg(unit_file(unit));
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
        assert!(ended.status.success(), "{unit} is exposed above {most}:\n{said}");
        assert!(!said.contains("nknown"), "{unit}: every line is known to systemd:\n{said}");
    }
}
