//! Failing stores, and how the services react.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use belay_e2e::{Client, Home, Runner, Service, Services};
use belay_proto::v1::{WaitingReason, execution::State, execution_event::Kind, waiting_reason};

const FREE: &str = "{file_write: auto}";
const PLAN: &str = "{id: p, steps: [{id: a, tool: noop}]}";

/// A small file system; unmounted when this value is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=755", "none"]).arg(&folder).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }

    /// Fills it up.
    fn fill(&self) {
        let ballast = fs::File::create(self.0.join("ballast")).unwrap();
        let block = vec![0; 4096];
        while std::io::Write::write_all(&mut &ballast, &block).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }

    /// Makes it read-only or writable, once no file is open for writing.
    async fn remount(&self, option: &str) {
        let remount =
            || Command::new("mount").args(["-o", &format!("remount,{option}")]).arg(&self.0).output().unwrap();
        while !remount().status.success() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// B-01, S2-NFR-006: when the runner cannot write its ledger, it exits with its reason. Once there is space, every call runs exactly once, and no
/// attempt was used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_the_ledger_strands_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(folder.path().canonicalize().unwrap().join("runner"));
    let Some(disk) = disk else {
        return eprintln!(
            "a_full_disk_under_the_ledger_strands_nothing: skipped, since no file system can be mounted here"
        );
    };
    let mut services = Services::under(folder.path(), FREE).await;
    let client = Client::new(&services.socket());
    let workspace = services.workspace("full");
    disk.fill();
    let steps: String = (0..4)
        .map(|n| format!("  - {{id: s{n}, tool: write_file, arguments: {{path: f{n}.txt, content: '{n}'}}}}\n"))
        .collect();
    client.start_in("full", &format!("id: full\nparallelism: 4\nsteps:\n{steps}"), &workspace).await;
    assert_eq!(services.ended(Service::Runner).await, Some(1));
    let log = services.log(Service::Runner);
    assert!(log.contains("STORE_FULL") && log.contains("ledger.db"), "{log}");
    assert_eq!(
        fs::read_dir(&workspace).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != ".belay").count(),
        0
    );

    disk.make_room();
    services.launch(Service::Runner);
    let picture = client.watch_to_the_end("full").await;
    assert_eq!(picture.state(), Some(State::Completed), "{:?}", picture.events());
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallOutcomeUnknown(_) | Kind::ToolCallFailed(_))), 0);
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))), 4);
    for n in 0..4 {
        assert_eq!(fs::read_to_string(workspace.join(format!("f{n}.txt"))).unwrap(), n.to_string());
    }
    Runner::new(&services.runner()).until_all_is_acknowledged().await;
}

/// A copy of what is in a folder, files only.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The existing files of a store.
fn files(folder: &Path, store: &str) -> Vec<PathBuf> {
    ["", "-wal", "-shm"]
        .map(|end| folder.join(format!("{store}{end}")))
        .into_iter()
        .filter(|path| path.exists())
        .collect()
}

/// B-01: a store that was put back from an old copy, or is gone, is refused by what the others remember; the way to accept it is said, works
/// once, and everything continues.
#[test]
fn a_journal_that_went_back_is_refused_until_it_is_accepted() {
    went_back("journal.db");
}

/// B-01.
#[test]
fn a_ledger_that_went_back_is_refused_until_it_is_accepted() {
    went_back("ledger.db");
}

/// B-01.
#[test]
fn a_store_of_the_gate_that_went_back_is_refused_until_it_is_accepted() {
    went_back("gate.db");
}

fn went_back(store: &str) {
    for restored in [true, false] {
        let home = Home::new();
        let plan = home.file("plan.yaml", PLAN);
        let write =
            home.file("w.yaml", "{id: w, steps: [{id: a, tool: write_file, arguments: {path: f, content: x}}]}");
        assert_eq!(home.run(["run", &plan, "--id", "first"]).code, 0);
        let old = home.path("old");
        copy(&home.state(), &old);
        // A question, under another policy: something for each of the three to keep.
        let policy = home.file("policy.yaml", "{file_write: prompt}");
        let asked = home.run(["run", &write, "--id", "later", "--policy", &policy, "--wait-timeout", "2s"]);
        assert_ne!(asked.code, 0, "{}", asked.talk);
        assert_eq!(home.run(["run", &plan, "--id", "last"]).code, 0);
        files(&home.state(), store).iter().for_each(|file| fs::remove_file(file).unwrap());
        if restored {
            files(&old, store).iter().for_each(|file| {
                fs::copy(file, home.state().join(file.file_name().unwrap())).unwrap();
            });
        }
        let refused = home.run(["executions", "list"]);
        let context = format!("{store}, restored: {restored}: {}", refused.talk);
        assert_eq!(refused.code, 1, "{context}");
        assert!(refused.talk.contains(store) && refused.talk.contains("--accept-older-store"), "{context}");
        assert!(refused.talk.contains("code: STORE_BEHIND"), "{context}");

        let server = home.serve_with(&["--accept-older-store"]);
        assert_eq!(home.run(["run", &plan, "--id", "again"]).code, 0, "{context}");
        server.signal(rustix::process::Signal::TERM);
        assert_eq!(server.end().code, 0, "{context}");
        assert_eq!(home.run(["run", &plan, "--id", "without"]).code, 0, "{context}");
    }
}

/// The same with each service in its own process: the service that is behind exits at the first request or response of another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_store_went_back_ends_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::under(folder.path(), FREE).await;
    let client = Client::new(&services.socket());
    for (n, service) in [Service::Runner, Service::Executor, Service::Gate].into_iter().enumerate() {
        let old = folder.path().join(format!("old-{n}"));
        services.kill(service).await;
        copy(&services.state(service), &old);
        services.launch(service);
        services.ready().await;
        // What comes after the copy: calls of which the ledger knows, events, and a question.
        let workspace = services.workspace(&format!("w{n}"));
        let write = format!("{{id: w, steps: [{{id: a, tool: write_file, arguments: {{path: f, content: '{n}'}}}}]}}");
        client.start_in(&format!("later-{n}"), &write, &workspace).await;
        assert_eq!(client.watch_to_the_end(&format!("later-{n}")).await.state(), Some(State::Completed));
        let asks = "{id: q, steps: [{id: a, tool: run_terminal, arguments: {command: ['true']}}, {id: b, tool: delete_file, arguments: {path: f}}]}";
        client.start_in(&format!("asks-{n}"), asks, &workspace).await;
        belay_e2e::Person::at(&services.people()).question(&belay_e2e::client::name(&format!("asks-{n}"))).await;
        client.start(&format!("last-{n}"), PLAN).await;
        client.watch_to_the_end(&format!("last-{n}")).await;

        services.kill(service).await;
        copy(&old, &services.state(service));
        for store in ["journal.db", "ledger.db", "gate.db"] {
            for end in ["-wal", "-shm"].map(|end| format!("{store}{end}")) {
                if !old.join(&end).exists() {
                    drop(fs::remove_file(services.state(service).join(&end)));
                }
            }
        }
        services.launch(service);
        assert_eq!(services.ended(service).await, Some(1), "{service:?}");
        let log = services.log(service);
        assert!(log.contains("STORE_BEHIND"), "{service:?}: {log}");

        services.launch_with(service, &["--accept-older-store"]);
        services.ready().await;
        client.start(&format!("again-{n}"), PLAN).await;
        assert_eq!(client.watch_to_the_end(&format!("again-{n}")).await.state(), Some(State::Completed), "{service:?}");
        services.restart(service).await;
        services.ready().await;
        client.start(&format!("without-{n}"), PLAN).await;
        assert_eq!(
            client.watch_to_the_end(&format!("without-{n}")).await.state(),
            Some(State::Completed),
            "{service:?}"
        );
    }
}

/// A service whose state directory is deleted acknowledges nothing from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_that_is_deleted_is_noticed() {
    for service in [Service::Executor, Service::Runner] {
        let folder = tempfile::tempdir().unwrap();
        let mut services = Services::under(folder.path(), FREE).await;
        let client = Client::new(&services.socket());
        client.start("before", PLAN).await;
        client.watch_to_the_end("before").await;
        let workspace = services.workspace("w");
        fs::remove_dir_all(services.state(service)).unwrap();
        let write = "{id: w, steps: [{id: a, tool: write_file, arguments: {path: f, content: x}}]}";
        let document =
            belay_proto::v1::PlanDocument { text: write.into(), format: belay_proto::v1::PlanFormat::Yaml.into() };
        let request = belay_proto::v1::StartExecutionRequest {
            parent: "namespaces/default".into(),
            source: Some(belay_proto::v1::start_execution_request::Source::Document(document)),
            workspace: workspace.to_str().unwrap().into(),
            ..Default::default()
        };
        let started = client.raw().start_execution(request).await;
        assert!(service == Service::Runner || started.is_err(), "it was acknowledged: {started:?}");
        assert_eq!(services.ended(service).await, Some(1), "{service:?}");
        let log = services.log(service);
        assert!(log.contains("STORE_GONE"), "{service:?}: {log}");
        assert!(!workspace.join("f").exists());
    }
}

/// A full disk under the workspace, or one that is read-only: the step waits in its first attempt, reports it, and continues when there is space and it
/// is writable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_waits_until_the_disk_of_its_workspace_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::under(folder.path(), FREE).await;
    let client = Client::new(&services.socket());
    let Some(disk) = SmallDisk::mount(folder.path().canonicalize().unwrap().join("work/small")) else {
        return eprintln!(
            "a_step_waits_until_the_disk_of_its_workspace_takes_it: skipped, since no file system can be mounted here"
        );
    };
    disk.fill();
    let content = "x".repeat(30_000);
    let steps: String = (0..2)
        .map(|n| format!("  - {{id: s{n}, tool: write_file, arguments: {{path: f{n}.txt, content: {content}}}}}\n"))
        .collect();
    client.start_in("small", &format!("id: small\nsteps:\n{steps}"), &disk.0).await;
    let is_said = async |words: &str| {
        let says_so =
            |reason: &WaitingReason| reason.kind() == waiting_reason::Kind::Workspace && reason.who.contains(words);
        while !client.get("small").await.waiting.iter().any(says_so) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    for (words, option) in [("which is full", "ro"), ("which is read-only: check its disk and remount it", "rw")] {
        let said = tokio::time::timeout(Duration::from_secs(60), is_said(words)).await;
        assert!(said.is_ok(), "{:?}", client.get("small").await);
        disk.remount(option).await;
    }
    disk.make_room();
    let picture = client.watch_to_the_end("small").await;
    assert_eq!(picture.state(), Some(State::Completed), "{:?}", picture.events());
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallFailed(_) | Kind::StepFailed(_))), 0);
    assert!(picture.events().iter().all(|event| event.attempt <= 1), "no attempt was spent");
    assert!(client.get("small").await.waiting.is_empty());
    for n in 0..2 {
        assert_eq!(fs::read_to_string(disk.0.join(format!("f{n}.txt"))).unwrap(), content);
    }
}
