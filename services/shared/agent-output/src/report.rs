//! What an agent has reported.

use std::time::Duration;

/// The longest text of a result, in bytes.
const MAX_TEXT: usize = 256 << 10;

/// An error that an agent has reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentError {
    /// Its words.
    pub message: String,
    /// The HTTP status that its model's server answered with, where it names one.
    pub status: Option<u16>,
    /// How long to wait before the server answers again.
    pub retry_after: Option<Duration>,
}

/// The end that an agent has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It has done its task.
    Success,
    /// It has not.
    Failure(AgentError),
}

/// The tokens that an agent has used, as it counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of prompts, those from a cache included.
    pub input_tokens: u64,
    /// Those of them that came from a cache.
    pub cached_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// The price, in millionths of a US dollar; `None` where the agent names none.
    pub cost_micros: Option<u64>,
}

/// The report of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its last words; all of its output for an agent that writes plain text.
    pub text: String,
    /// Whether the beginning of `text` is left out.
    pub is_cut: bool,
    /// Its name of the session.
    pub session: String,
    /// The model that it has named.
    pub model: String,
    /// The tokens that it has used.
    pub usage: Usage,
    /// The quota that is used up until this time, in seconds since 1970.
    pub resets_at: Option<u64>,
    /// How long it has last waited for its model's server.
    pub last_wait: Option<Duration>,
    /// The last error that it has reported since it last did something.
    pub error: Option<AgentError>,
    /// The end that it has reported.
    pub end: Option<End>,
    /// How often it has reported an end: it may begin anew.
    pub ends: u32,
}

impl Report {
    /// Sets the text.
    pub(crate) fn say(&mut self, text: &str) {
        self.text.clear();
        self.is_cut = false;
        self.add(text);
    }

    /// Adds to the text, whose end is kept.
    pub(crate) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        // Cut rarely, so that many short lines do not move the text each time.
        if self.text.len() > 2 * MAX_TEXT {
            self.cut();
        }
    }

    /// Cuts the text to its longest length.
    pub(crate) fn cut(&mut self) {
        if self.text.len() > MAX_TEXT {
            let start = self.text.ceil_char_boundary(self.text.len() - MAX_TEXT);
            self.text.drain(..start);
            self.is_cut = true;
        }
    }

    /// Sets the end.
    pub(crate) fn finish(&mut self, end: End) {
        self.end = Some(end);
        self.ends = self.ends.saturating_add(1);
    }

    /// Records that it goes on: what went wrong before has passed.
    pub(crate) fn progress(&mut self) {
        self.error = None;
        self.last_wait = None;
    }
}
