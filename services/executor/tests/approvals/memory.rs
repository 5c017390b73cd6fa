//! Waiting for a person costs rows, not memory.

use std::sync::Arc;

use belay_executor::{Executions, Gate, Parts, Runner};
use belay_proto::v1::{self, approval::State, executor_service_server::ExecutorServiceServer};
