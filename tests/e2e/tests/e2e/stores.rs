//! Stores that fail, and what the services make of it.

use std::{fs, path::PathBuf, process::Command};

use belay_e2e::{Client, Runner, Service, Services};
use belay_proto::v1::{execution::State, execution_event::Kind};

const FREE: &str = "{file_write: auto}";

/// A small file system of its own; gone with this value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=700", "none"]).arg(&folder).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }

    /// Leaves no room on it.
    fn fill(&self) {
        let ballast = fs::File::create(self.0.join("ballast")).unwrap();
        let block = vec![0; 4096];
        while std::io::Write::write_all(&mut &ballast, &block).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// B-01, S2-NFR-006: where the runner's ledger cannot be written, the runner ends with its reason instead of guessing. Once there is room
/// every call happens exactly once, and no attempt was spent.
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
