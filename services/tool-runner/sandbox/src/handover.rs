//! What the launcher hands over to init once it knows the command: the invocation, the mounts that it has taken as root, and the pipes of the command.

use std::{
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

use crate::{
    connection::{receive as receive_message, send},
    protocol::{Invocation, TakenMount, ToInit},
    sources::{self, CallSources, ConfiguredMount, HostMount},
    wire::frame,
};

/// The command as init has received it.
pub(crate) struct Handover {
    pub(crate) call: Invocation,
    /// Empty if init has to take them.
    pub(crate) sources: CallSources,
    pub(crate) pipes: CallPipes,
}

/// The ends of the pipes of a command.
#[derive(Default)]
pub(crate) struct CallPipes {
    /// Those of its dialogue: the one from which it reads, then the one to which it writes.
    pub(crate) dialogue: Option<[OwnedFd; 2]>,
    /// From which init reads a byte once the runner has the sockets of the command.
    pub(crate) received: Option<OwnedFd>,
}

impl CallPipes {
    /// Takes the pipes of a call, in the order in which they are sent.
    pub(crate) fn take(call: &Invocation, mut next: impl FnMut() -> io::Result<OwnedFd>) -> io::Result<Self> {
        let dialogue = if call.dialogue.is_some() { Some([next()?, next()?]) } else { None };
        let received = if call.sockets.is_some() { Some(next()?) } else { None };
        Ok(Self { dialogue, received })
    }
}

/// Hands over a command. Without `sources` init takes them.
pub(crate) fn send_to_init(
    link: &mut UnixStream,
    call: &Invocation,
    sources: Option<&CallSources>,
    pipes: &CallPipes,
) -> io::Result<()> {
    send(link, &frame(call), None)?;
    let mut mount = |what, mount: &OwnedFd| send(link, &frame(&ToInit::Mount(what)), Some(mount.as_fd()));
    if let Some(CallSources { lower, staging, scratch, mounts }) = sources {
        lower.iter().try_for_each(|layer| mount(TakenMount::Lower, layer))?;
        staging.iter().try_for_each(|folder| mount(TakenMount::Staging, folder))?;
        scratch.iter().try_for_each(|folder| mount(TakenMount::Scratch, folder))?;
        for ConfiguredMount { piece, .. } in mounts {
            mount(TakenMount::Configured(piece.folder), &piece.mount)?;
        }
    }
    for end in pipes.dialogue.iter().flatten().chain(&pipes.received) {
        send(link, &frame(&ToInit::Pipe), Some(end.as_fd()))?;
    }
    send(link, &frame(&ToInit::Go), None)
}

/// Receives a command. `None`: there will be none.
pub(crate) fn receive(link: &mut UnixStream) -> io::Result<Option<Handover>> {
    let Some((call, _)) = receive_message::<Invocation>(link)? else { return Ok(None) };
    let (mut sources, mut ends) = (CallSources::default(), Vec::new());
    let mut configured = call.mounts.iter();
    loop {
        match receive_message(link)? {
            None => return Ok(None),
            Some((ToInit::Go, None)) => break,
            Some((ToInit::Pipe, Some(end))) => ends.push(end),
            Some((ToInit::Mount(what), Some(mount))) => match what {
                TakenMount::Lower => sources.lower.push(mount),
                TakenMount::Staging => sources.staging = Some(mount),
                TakenMount::Scratch => sources.scratch = Some(mount),
                TakenMount::Configured(folder) => {
                    let of =
                        configured.next().ok_or_else(|| io::Error::other("the launcher has sent too many mounts"))?;
                    let piece = HostMount { place: of.target.clone(), mount, folder };
                    let changes = sources::changes_of(of, &call);
                    sources.mounts.push(ConfiguredMount { piece, kind: of.kind, changes });
                }
            },
            Some(_) => return Err(io::Error::other("the launcher has sent a message without its descriptor")),
        }
    }
    let mut ends = ends.into_iter();
    let pipes =
        CallPipes::take(&call, || ends.next().ok_or_else(|| io::Error::other("the launcher has sent too few pipes")))?;
    Ok(Some(Handover { call, sources, pipes }))
}
