//! A test of the sandbox whose processes are killed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    time::Duration,
};

use belay_defects::{Defect, assert_attack_needs};
use belay_proto::{runner_v1::enforcement_report::Tier, v1::ErrorClass};
use belay_tool_runner::{Enforcement, SandboxSettings};

use crate::{
    harness::{Test, tests},
    support::block_on,
};

pub(crate) const TESTS: &[Test] = tests![a_test_whose_launcher_is_killed_is_no_verdict];

/// The launcher is killed at the start. The next command tests the sandbox again, and commands run from then on.
fn a_test_whose_launcher_is_killed_is_no_verdict() {
    assert_attack_needs(Defect::LostTestIsFinal, "commands are refused for good", a_killed_launcher);
}

fn a_killed_launcher() -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (killed, executable) = (folder.path().join("killed"), folder.path().join("launcher"));
    // Dies of the same signal by which the kernel ends processes when memory runs out.
    fs::write(&killed, "#!/bin/sh\nkill -9 $$\n").unwrap();
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(&killed, &executable).unwrap();
    let settings = SandboxSettings { executable: executable.clone(), ..SandboxSettings::default() };
    let enforcement = Enforcement::probed(settings);
    let lost = enforcement.launcher().err().unwrap();
    assert_eq!(lost.reason, "SANDBOX_UNAVAILABLE", "{lost:?}");
    if lost.class != ErrorClass::Transient {
        // Nor does it help that nobody kills the launcher any more.
        fs::copy(std::env::current_exe().unwrap(), &killed).unwrap();
        block_on(enforcement.tested()).unwrap();
        let refused = enforcement.launcher().err().map(|refused| refused.message);
        return Err(format!("commands are refused for good: {refused:?}"));
    }
    assert!(lost.message.contains("was lost") && !lost.message.contains("::"), "{lost:?}");
    assert_eq!(enforcement.to_proto().tier(), Tier::None);

    fs::remove_file(&executable).unwrap();
    symlink(std::env::current_exe().unwrap(), &executable).unwrap();
    let tested = block_on(async {
        loop {
            match enforcement.tested().await {
                // Until the delay is over.
                Err(lost) if lost.class == ErrorClass::Transient => tokio::time::sleep(Duration::from_millis(50)).await,
                tested => break tested,
            }
        }
    });
    tested.unwrap();
    assert!(enforcement.launcher().is_ok());
    assert_eq!((enforcement.to_proto().tier(), enforcement.to_proto().breaches.len()), (Tier::A, 0));
    Ok(())
}
