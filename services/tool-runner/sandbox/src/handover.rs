//! What the launcher hands over to init once it knows the command: the invocation, the mounts that it has taken as root, and the pipes over which the
//! command asks.

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
    pub(crate) asking: Option<[OwnedFd; 2]>,
}

/// Hands over a command. Without `sources` init takes them.
pub(crate) fn send_to_init(
    link: &mut UnixStream,
    call: &Invocation,
    sources: Option<&CallSources>,
    asking: Option<&[OwnedFd; 2]>,
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
    for end in asking.into_iter().flatten() {
        send(link, &frame(&ToInit::Pipe), Some(end.as_fd()))?;
    }
    send(link, &frame(&ToInit::Go), None)
}

/// Receives a command. `None`: there will be none.
pub(crate) fn receive(link: &mut UnixStream) -> io::Result<Option<Handover>> {
    let Some((call, _)) = receive_message::<Invocation>(link)? else { return Ok(None) };
    let (mut sources, mut asking) = (CallSources::default(), Vec::new());
    let mut configured = call.mounts.iter();
    loop {
        match receive_message(link)? {
            None => return Ok(None),
            Some((ToInit::Go, None)) => break,
            Some((ToInit::Pipe, Some(end))) => asking.push(end),
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
    Ok(Some(Handover { call, sources, asking: asking.try_into().ok() }))
}
