//! A driver without a world around it, and the words in which the stories are told.

mod audit;
mod picture;
mod play;
mod runner;
mod story;
mod transitions;

pub(crate) use audit::Audit;
pub(crate) use play::{Crash, Play, START, created, without_recoveries};
pub(crate) use runner::{Outcome, Question, Reply};
pub(crate) use story::{Story, act_of, failure, request, requirement, story};
pub(crate) use transitions::{States, Transitions};
