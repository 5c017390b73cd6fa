//! The last steps of the process that becomes the command.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{chdir, setsid},
};

use crate::{
    WORKSPACE, confinement,
    ended::EnforcedParts,
    layer::Layer,
    protocol::{Command, Context as _, Failure, Message},
    seccomp,
    spec::{ASK_DESCRIPTORS, Dialogue},
    sys,
    wire::frame,
};

/// Confines this process and executes the program. Failures are written to `report`, which closes when the program runs.
pub(crate) fn become_command(
    command: Command<'_>,
    process_limit: bool,
    loopback: bool,
    dialogue: Option<[OwnedFd; 2]>,
    report: io::PipeWriter,
) -> ! {
    // Above the descriptors of the command.
    let mut report = match fcntl_dupfd_cloexec(&report, FIRST_FREE) {
        Ok(moved) => {
            drop(report);
            io::PipeWriter::from(moved)
        }
        Err(_) => report,
    };
    let failure = match confine(command, loopback, dialogue) {
        Ok(landlock_abi) => {
            let enforced = EnforcedParts { landlock_abi, process_limit, loopback };
            // If init is gone, this process is about to be killed.
            let _ = report.write_all(&frame(&Message::Started(enforced)));
            execute(command)
        }
        Err(failure) => failure,
    };
    let _ = report.write_all(&frame(&Message::Failed(failure)));
    sys::exit(127)
}

/// The first descriptor that a command never gets.
const FIRST_FREE: i32 = ASK_DESCRIPTORS[1] + 1;

/// Gives the command the ends of the pipes of its dialogue.
fn place([from, to]: [OwnedFd; 2], dialogue: Dialogue) -> io::Result<()> {
    // Either may have the number of the other.
    let moved = [fcntl_dupfd_cloexec(&from, FIRST_FREE)?, fcntl_dupfd_cloexec(&to, FIRST_FREE)?];
    drop((from, to));
    for (end, number) in moved.into_iter().zip(dialogue.descriptors()) {
        sys::place(end, number)?;
    }
    Ok(())
}

fn confine(command: Command<'_>, loopback: bool, pipes: Option<[OwnedFd; 2]>) -> Result<u8, Failure> {
    // Its own session: without a controlling terminal, and with none in the view to open.
    setsid().at(Layer::Limits, || "starting a session".to_owned())?;
    sys::reset_signals();
    let null = File::open("/dev/null").at(Layer::View, || "opening /dev/null".to_owned())?;
    rustix::stdio::dup2_stdin(&null).at(Layer::View, || "setting the standard input".to_owned())?;
    let cwd = Path::new(WORKSPACE).join(&command.call.cwd);
    chdir(&cwd).map_err(|error| Failure::WorkingDirectory(error.raw_os_error()))?;

    confinement::limit(&command.armed.limits).at(Layer::Limits, || "setting the limits".to_owned())?;
    confinement::drop_privileges().at(Layer::Privileges, || "dropping the capabilities".to_owned())?;
    let abi = confinement::landlock(command).at(Layer::Landlock, || "confining the command".to_owned())?;
    let dialogue = command.call.dialogue;
    let asks = dialogue == Some(Dialogue::Questions);
    let first_closed = if asks { FIRST_FREE } else { ASK_DESCRIPTORS[0] };
    if let Some((pipes, dialogue)) = pipes.zip(dialogue) {
        place(pipes, dialogue).at(Layer::View, || "handing over the pipes of its dialogue".to_owned())?;
    }
    sys::close_on_exec_from(first_closed.unsigned_abs())
        .at(Layer::View, || "closing inherited descriptors".to_owned())?;
    sys::install_filter(&seccomp::for_command(loopback)).at(Layer::Seccomp, || "installing the filter".to_owned())?;
    Ok(abi)
}

/// Executes the program from the first directory that has it. Returns the failure if none does.
fn execute(command: Command<'_>) -> Failure {
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).expect("spec.check() rejects NUL bytes");
    let args: Vec<CString> =
        std::iter::once(&command.call.program).chain(&command.call.args).map(|arg| c_string(arg)).collect();
    let env: Vec<CString> = command
        .call
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
    for path in candidates(command) {
        let error = sys::execve(&c_string(path.as_os_str()), &args, &env);
        match error.raw_os_error().unwrap_or(libc::EIO) {
            // Does not exist. (ENOENT for an existing file means that its interpreter is missing.)
            libc::ENOENT | libc::ENOTDIR if !path.exists() => {}
            // Like a shell: keep searching, and report this if nothing else is found.
            number @ libc::EACCES => failure = Failure::ProgramNotExecutable(number),
            number => return Failure::ProgramNotExecutable(number),
        }
    }
    failure
}

/// The candidate paths of the program.
fn candidates(command: Command<'_>) -> Vec<std::path::PathBuf> {
    if command.call.program.as_bytes().contains(&b'/') {
        vec![command.call.program.clone().into()]
    } else {
        command.armed.path.iter().map(|folder| folder.join(&command.call.program)).collect()
    }
}
