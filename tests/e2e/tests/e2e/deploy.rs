//! What stands in deploy/ fits the programs.

use std::{fs, path::Path, time::Duration};

use belay_e2e::{Home, Process, Runner, belay::repository, client::serving};

/// The arguments of a unit's program, with the places of a host put below `root`.
fn command_line(unit: &str, root: &Path) -> Vec<String> {
    let path = repository().join("deploy/systemd").join(unit).with_extension("service");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a unit starts something");
    let root = root.display();
    let mut words = line.split(' ').map(|word| {
        ["/var/lib/belay/", "/run/belay/", "/etc/belay/", "/srv/belay"]
            .iter()
            .fold(word.to_owned(), |word, place| word.replace(place, &format!("{root}{place}")))
    });
    assert_eq!(words.next().as_deref(), Some(&*format!("/usr/local/bin/{unit}")), "{}", path.display());
    words.collect()
}

/// The units name one another's sockets, keys and flags rightly: started by their command lines, the three carry a plan out.
#[tokio::test]
async fn the_units_of_systemd_start_services_that_work_together() {
    let home = Home::new();
    let root = home.path("host");
    for folder in ["var/lib/belay", "run/belay", "etc/belay", "srv/belay/project"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::copy(repository().join("docs/examples/policy.yaml"), root.join("etc/belay/policy.yaml")).unwrap();
    let start = |unit: &str| {
        let arguments = command_line(unit, &root);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::start(unit, &arguments, &root.join(unit).with_extension("log"))
    };
    let socket = |name: &str| root.join("run/belay").join(name);
    let all = async {
        let gate = start("belay-approval-gate");
        serving(&socket("gate.sock"), "belay.v1.ApprovalGateService").await;
        let (runner, executor) = (start("belay-tool-runner"), start("belay-executor"));
        Runner::new(&socket("runner.sock")).until_it_has_a_policy().await;
        serving(&socket("executor.sock"), "belay.v1.ExecutorService").await;
        [gate, runner, executor]
    };
    let _services = tokio::time::timeout(Duration::from_secs(60), all).await.expect("they serve within a minute");
    let plan = home.file("plan.yaml", "id: p\nsteps: [{id: look, tool: list_directory, arguments: {path: .}}]\n");
    let address = |name: &str| format!("unix:{}", socket(name).display());
    let project = root.join("srv/belay/project").display().to_string();
    let (executor, gate) = (address("executor.sock"), address("gate.sock"));
    let run = home.run(["run", &plan, "--server", &executor, "--gate", &gate, "--workspace", &project]);
    assert_eq!(run.code, 0, "{run:?}");
}
