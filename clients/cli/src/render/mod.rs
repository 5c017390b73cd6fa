//! Renders what people and programs see. Everything but `live` is plain functions from the contract's messages to text.

pub(crate) mod approval;
pub(crate) mod artifact;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod compare;
pub(crate) mod diff;
pub(crate) mod event;
pub(crate) mod execution;
pub(crate) mod form;
pub(crate) mod graph;
pub(crate) mod json;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod namespace;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod planned;
pub(crate) mod result;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod timeline;
pub(crate) mod tool;
pub(crate) mod tracked_execution;
pub(crate) mod violation;
pub(crate) mod why;
pub(crate) mod words;
