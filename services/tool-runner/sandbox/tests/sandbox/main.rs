//! The sandbox on the real kernel: ordinary and hostile commands, their changes, and their ends.
//!
//! Run as root, every test runs twice: as root and as an ordinary user.

mod asking;
mod bounds;
mod builds;
mod commands;
mod endings;
mod harness;
mod isolation;
mod machine;
mod network;
mod network_client;
mod network_names;
mod offline;
mod outputs;
mod overlay;
mod slots;
mod support;
mod user;

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_sandbox::take_over_if_asked();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder] = &args[..]
        && role == endings::RUNNER
    {
        return endings::run_as_waiting_runner(folder.as_ref());
    }
    if let [role, folder] = &args[..]
        && role == slots::RUNNER
    {
        return slots::run_with_waiting_sandboxes(folder.as_ref());
    }
    if let [role, folder] = &args[..]
        && role == endings::AT_A_TERMINAL
    {
        return endings::run_at_a_terminal(folder.as_ref());
    }
    if let [role] = &args[..]
        && role == isolation::WITH_FEW_OPEN_FILES
    {
        return isolation::with_few_open_files();
    }
    if let [role] = &args[..]
        && role == network::WITHOUT_DESCRIPTORS
    {
        return network::without_descriptors();
    }
    if let [role, what @ ..] = &args[..]
        && role == network_client::CLIENT
    {
        return network_client::run(what);
    }
    let tests = [
        commands::TESTS,
        asking::TESTS,
        bounds::TESTS,
        builds::TESTS,
        offline::TESTS,
        outputs::TESTS,
        isolation::TESTS,
        network::TESTS,
        network_names::TESTS,
        overlay::TESTS,
        endings::TESTS,
        slots::TESTS,
        machine::TESTS,
        user::TESTS,
    ]
    .concat();
    support::leave_mounts_of_others(&args);
    harness::run(&tests, &args)
}
