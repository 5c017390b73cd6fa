//! Metrics of the tool runner.

use belay_service_kit::metrics::{MetricsSource, Reading};

use crate::Calls;

impl MetricsSource for Calls {
    fn metrics(&self) -> Reading<'_> {
        Box::pin(std::future::ready(vec![self.enforcement.started_commands().read()]))
    }
}
