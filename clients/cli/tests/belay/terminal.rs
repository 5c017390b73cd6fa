//! `belay` at a terminal, with a person who types.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// How long a wait may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A command whose three streams are a terminal.
pub(crate) struct AtTerminal {
    child: Child,
    keyboard: Option<File>,
    screen: Receiver<String>,
    seen: String,
    /// Reads what comes on the screen, until this pipe closes.
    reading: Option<(PipeWriter, JoinHandle<()>)>,
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
        tcsetwinsize(&near, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "dumb");
        }
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        // Or its end would not be seen.
        drop((command, far));
        let keyboard = File::from(near);
        let glass = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        let (closed, close) = io::pipe().unwrap();
        let reading = std::thread::spawn(move || read(glass, &closed, &sender));
        AtTerminal { child, keyboard: Some(keyboard), screen, seen: String::new(), reading: Some((close, reading)) }
    }

    /// Starts an interactive shell whose controlling terminal this is: what it starts gets the signals that keys stand for.
    pub(crate) fn shell(environment: &Command) -> AtTerminal {
        // Also where the tests were started with signals ignored, as by `nohup` or in the background of a script.
        let mut shell = Command::new("env");
        shell.args(["--default-signal", "setsid", "--ctty", "sh", "-i"]).env("PS1", "").env("ENV", "");
        for (name, value) in environment.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(folder) = environment.get_current_dir() {
            shell.current_dir(folder);
        }
        AtTerminal::start(shell)
    }

    /// Waits until these words stand on the screen, after those waited for before. All that has come since.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        loop {
            if let Some(place) = self.seen.find(words) {
                let rest = self.seen.split_off(place + words.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.screen.recv_timeout(TIMEOUT) {
                Ok(more) => self.seen += &more,
                Err(end) => panic!("{words:?} did not come ({end}) after:\n{}", self.seen),
            }
        }
    }

    /// Types a line.
    pub(crate) fn types(&mut self, line: &str) {
        writeln!(self.keyboard.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Presses these keys, without Enter.
    pub(crate) fn presses(&mut self, keys: &str) {
        self.keyboard.as_ref().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Presses a key together with Ctrl, such as `'C'`.
    pub(crate) fn ctrl(&mut self, key: char) {
        self.keyboard.as_ref().unwrap().write_all(&[key as u8 & 0x1f]).unwrap();
    }

    /// Presses a key together with Ctrl twice, faster than what runs there can react to the first.
    pub(crate) fn ctrl_twice(&mut self, key: char) {
        self.keyboard.as_ref().unwrap().write_all(&[key as u8 & 0x1f; 2]).unwrap();
    }

    /// Closes the terminal's window: its processes get SIGHUP.
    pub(crate) fn close(&mut self) {
        let (close, reading) = self.reading.take().unwrap();
        drop(close);
        reading.join().unwrap();
        self.keyboard = None;
    }

    /// Makes the window as large as this.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.keyboard.as_ref().unwrap(), size).unwrap();
    }

    /// The process, to send it signals.
    pub(crate) fn child(&self) -> &Child {
        &self.child
    }

    /// Waits for its end: the exit code, and what came on the screen since the last wait.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        while let Ok(more) = self.screen.recv_timeout(TIMEOUT) {
            self.seen += &more;
        }
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.seen).replace("\r\n", "\n"))
    }
}

/// Reads the screen until the last process has closed the terminal, or `closed` is closed.
fn read(mut glass: File, closed: &PipeReader, screen: &Sender<String>) {
    let mut bytes = [0; 4096];
    loop {
        let mut ready = [PollFd::new(&glass, PollFlags::IN), PollFd::new(closed, PollFlags::empty())];
        poll(&mut ready, None).unwrap();
        if !ready[1].revents().is_empty() {
            return;
        }
        match glass.read(&mut bytes) {
            Ok(read @ 1..) if screen.send(String::from_utf8_lossy(&bytes[..read]).into_owned()).is_ok() => {}
            _ => return,
        }
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
