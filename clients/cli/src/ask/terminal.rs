//! Lines typed at the terminal.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    thread,
};

use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::mpsc;

/// Whether a person can be asked: standard input and standard error are terminals.
pub(crate) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The lines that are typed. Nothing is read before the first is wanted.
#[derive(Default)]
pub(crate) struct Terminal {
    typed: Option<mpsc::UnboundedReceiver<String>>,
}

impl Terminal {
    /// Discards what was typed before the question was shown.
    pub(crate) fn forget_typed(&mut self) {
        // Fails where standard input is not a terminal, and then there is nothing to flush.
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        if let Some(typed) = &mut self.typed {
            while typed.try_recv().is_ok() {}
        }
    }

    /// The next line; `None` at the end of the input.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.typed.get_or_insert_with(read).recv().await
    }
}

/// Reads on a separate thread, which ends with the input or the process.
fn read() -> mpsc::UnboundedReceiver<String> {
    let (sender, typed) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    typed
}
