//! Checks that ARCHITECTURE.md, docs/requirements.md and docs/errors.md describe the code as it is: who may import whom, which crates are pure, where
//! `unsafe` and the clock may be, and which test shows which requirement.
//!
//! Every rule is a function of its input, so that it is also tested with invented cases that it has to reject.

mod circles;
mod defects;
mod errors;
mod formats;
mod house;
mod layers;
mod manners;
mod paths;
mod pure;
mod requirements;
mod source;
mod walks;
