//! The verbs, one file each.

pub(crate) mod api;
pub(crate) mod approvals;
pub(crate) mod artifacts;
pub(crate) mod audit;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod executions;
pub(crate) mod explain;
mod listing;
pub(crate) mod logs;
pub(crate) mod models;
pub(crate) mod namespaces;
pub(crate) mod network;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod principals;
pub(crate) mod prune;
pub(crate) mod run;
pub(crate) mod schedules;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod tools;
pub(crate) mod why;
