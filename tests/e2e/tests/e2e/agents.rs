//! Steps in which a model works towards a goal, with the real programs and a model whose answers are written down.

mod crashes;
mod examples;
mod files;
mod judging;
mod loops;
mod many;
mod misbehaviour;
mod people;
mod requests;
mod script;
mod turns;
