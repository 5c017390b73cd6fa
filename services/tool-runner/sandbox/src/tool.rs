//! The last steps of the process that becomes the command.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

use rustix::process::{chdir, setsid};

use crate::{
    WORKSPACE,
    layer::Layer,
    order::{At as _, Command, Failure, Message},
    running::Enforced,
    seccomp, sys, walls,
    wire::frame,
};

/// Puts the walls up around this process and executes the command's program. What comes of it is written to `report`, which closes
/// by itself when the program runs.
pub(crate) fn become_command(command: &Command, process_limit: bool, loopback: bool, mut report: impl io::Write) -> ! {
    let failure = match wall_off(command, loopback) {
        Ok(landlock_abi) => {
            let enforced = Enforced { landlock_abi, process_limit, loopback };
            // Nobody reads when init is gone, and then this process is about to be.
            let _ = report.write_all(&frame(&Message::Started(enforced)));
            execute(command)
        }
        Err(failure) => failure,
    };
    let _ = report.write_all(&frame(&Message::Failed(failure)));
    sys::exit(127)
}

fn wall_off(command: &Command, loopback: bool) -> Result<u8, Failure> {
    // A session of its own: there is no terminal to be had, and none in the view to open.
    setsid().at(Layer::Limits, || "starting a session".to_owned())?;
    sys::reset_signals();
    let null = File::open("/dev/null").at(Layer::View, || "opening /dev/null".to_owned())?;
    rustix::stdio::dup2_stdin(&null).at(Layer::View, || "setting the standard input".to_owned())?;
    let cwd = Path::new(WORKSPACE).join(&command.cwd);
    chdir(&cwd).map_err(|error| Failure::WorkingDirectory(error.raw_os_error()))?;

    walls::limit(&command.limits).at(Layer::Limits, || "setting the limits".to_owned())?;
    walls::drop_privileges().at(Layer::Privileges, || "dropping the capabilities".to_owned())?;
    let abi = walls::landlock(command).at(Layer::Landlock, || "confining the command".to_owned())?;
    sys::close_on_exec_from(3).at(Layer::View, || "closing what is not the command's".to_owned())?;
    sys::install_filter(&seccomp::for_command(loopback)).at(Layer::Seccomp, || "installing the filter".to_owned())?;
    Ok(abi)
}

/// Executes the program where it is found. Comes back with the reason if nowhere.
fn execute(command: &Command) -> Failure {
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).expect("a spec with NUL bytes is refused");
    let args: Vec<CString> = std::iter::once(&command.program).chain(&command.args).map(|arg| c_string(arg)).collect();
    let env: Vec<CString> = command
        .env
        .iter()
        .map(|(name, value)| {
            let mut variable = OsString::from(name).into_vec();
            variable.push(b'=');
            variable.extend_from_slice(value.as_bytes());
            c_string(OsStr::from_bytes(&variable))
        })
        .collect();

    let mut failure = Failure::ProgramNotFound;
    for place in places(command) {
        let error = sys::execve(&c_string(place.as_os_str()), &args, &env);
        match error.raw_os_error().unwrap_or(libc::EIO) {
            // Not there; or there, and its interpreter is not.
            libc::ENOENT | libc::ENOTDIR if !place.exists() => {}
            // As a shell does: look on, and say so if nothing better comes.
            number @ libc::EACCES => failure = Failure::ProgramNotExecutable(number),
            number => return Failure::ProgramNotExecutable(number),
        }
    }
    failure
}

/// Where to look for the program.
fn places(command: &Command) -> Vec<std::path::PathBuf> {
    if command.program.as_bytes().contains(&b'/') {
        vec![command.program.clone().into()]
    } else {
        command.path.iter().map(|folder| folder.join(&command.program)).collect()
    }
}
