//! `belay` at a terminal, with a person who types.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// How long anything may take before the test gives up on it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command whose three streams are a terminal.
pub(crate) struct AtTerminal {
    child: Child,
    keyboard: File,
    screen: Receiver<String>,
    seen: String,
}

impl AtTerminal {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> AtTerminal {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap();
        let far: OwnedFd =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let stream = || Stdio::from(far.try_clone().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).env("TERM", "dumb").spawn().unwrap();
        // Or its end would not be seen.
        drop((command, far));
        let keyboard = File::from(near);
        let mut glass = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = glass.read(&mut bytes) {
                if sender.send(String::from_utf8_lossy(&bytes[..read]).into_owned()).is_err() {
                    return;
                }
            }
        });
        AtTerminal { child, keyboard, screen, seen: String::new() }
    }

    /// Waits until these words stand on the screen, after those waited for before. All that has come since.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        loop {
            if let Some(place) = self.seen.find(words) {
                let rest = self.seen.split_off(place + words.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.screen.recv_timeout(PATIENCE) {
                Ok(more) => self.seen += &more,
                Err(end) => panic!("{words:?} did not come ({end}) after:\n{}", self.seen),
            }
        }
    }

    /// Types a line.
    pub(crate) fn types(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").unwrap();
    }

    /// The process, to send it signals.
    pub(crate) fn child(&self) -> &Child {
        &self.child
    }

    /// Waits for its end: the exit code, and what came on the screen since the last wait.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        while let Ok(more) = self.screen.recv_timeout(PATIENCE) {
            self.seen += &more;
        }
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.seen).replace("\r\n", "\n"))
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
