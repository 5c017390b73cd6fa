//! A driver without a world around it, and the words in which the stories are told.

mod audit;
mod children;
mod conditions;
pub(crate) mod is;
mod picture;
mod play;
mod runner;
mod story;
mod transitions;

pub(crate) use audit::Audit;
pub(crate) use conditions::Conditions;
pub(crate) use play::{Crash, Happening, Play, START, created, edited, without_recoveries};
pub(crate) use runner::{Outcome, Question, Reply};
pub(crate) use story::{Story, act_of, action, call, failed, failure, request, requirement, step, story};
pub(crate) use transitions::{States, Transitions};
