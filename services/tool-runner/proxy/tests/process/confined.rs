//! What the process cannot do. The attacks themselves are carried out by the process at each start, which fails if one succeeds.

use std::{
    fs,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
};

use belay_proxy::{Proxy, ProxySettings, ServiceUser};

use crate::{
    harness::{Test, tests},
    support::{executable, proxy},
};

pub(crate) const TESTS: &[Test] = tests![
    the_process_is_confined,
    it_has_no_descriptors_of_others_and_no_environment,
    it_cannot_read_what_the_services_keep,
];

fn the_process_is_confined() {
    let proxy = proxy();
    let enforced = proxy.enforced();
    let has = |name: &str| enforced.iter().any(|part| part.starts_with(name));
    assert!(has("proxy landlock") && has("proxy seccomp"), "{enforced:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.process_id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {status}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"]);
    assert_eq!(field("Threads:"), ["1"]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    if rustix::process::getuid().is_root() {
        assert_eq!(field("Uid:"), ["65533"; 4]);
        assert_eq!(field("Gid:"), ["65533"; 4]);
        assert!(field("Groups:").is_empty() && has("proxy user 65533"));
    }
}

fn it_has_no_descriptors_of_others_and_no_environment() {
    // A descriptor that is inherited, as those of `make` are.
    let file = fs::File::open("/proc/self/status").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let proxy = proxy();
    let folder = format!("/proc/{}", proxy.process_id());
    // A process that is not dumpable shows these to root only.
    let Ok(entries) = fs::read_dir(format!("{folder}/fd")) else { return };
    let mut targets: Vec<String> = entries
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    targets.sort();
    assert!(!targets.iter().any(|target| target.contains("status")), "{targets:?}");
    assert!(fs::read(format!("{folder}/environ")).unwrap_or_default().is_empty());
}

/// The process itself tries, with its memory and its rights, to open a key, a ledger and a socket that everybody may open.
fn it_cannot_read_what_the_services_keep() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let paths = ["seal.key", "ledger.db", "gate.sock"].map(|name| folder.path().join(name));
    for file in &paths[..2] {
        fs::write(file, "secret").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let _gate = UnixListener::bind(&paths[2]).unwrap();
    fs::set_permissions(&paths[2], fs::Permissions::from_mode(0o777)).unwrap();
    // It starts, because nothing of it can be opened.
    let settings = ProxySettings { closed: paths.to_vec(), ..ProxySettings::default() };
    Proxy::start(&executable(), ServiceUser::default(), &settings).unwrap();
    // The attack is a real one: this process can.
    assert!(paths[..2].iter().all(|file| fs::File::open(file).is_ok()));
    assert!(UnixStream::connect(&paths[2]).is_ok());
}
