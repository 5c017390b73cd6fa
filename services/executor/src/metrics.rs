//! What the executor measures of itself.

use belay_journal::{AnyOf, Condition, Order, Query};
use belay_proto::v1::waiting_reason::Kind;
use belay_service_kit::metrics::{Gauge, Measured, Reading};

use crate::registry::ExecutionRegistry;

/// How many executions that wait for a person to find out what a call did are counted: an operator needs to know that there are some, and a scrape
/// must not read all of them.
const MAX_COUNTED: usize = 1000;

impl Measured for ExecutionRegistry {
    fn gauges(&self) -> Reading<'_> {
        Box::pin(async move {
            let awaits_outcome = Query {
                namespace: None,
                filter: vec![AnyOf(vec![Condition::WaitsFor(true, Kind::Outcome.into())])],
                order: Order::NEWEST_FIRST,
                after: None,
                limit: MAX_COUNTED,
            };
            let listed = self.client_reads.read(move |reader| reader.list(&awaits_outcome)).await;
            let mut gauges = vec![
                gauge(
                    "belay_executor_calls_in_doubt",
                    "Calls that an earlier process may have sent to the tool runner and whose end is not known yet",
                    self.calls_in_doubt.count(),
                ),
                gauge(
                    "belay_executor_executions_in_memory",
                    "Executions in memory; parked ones are not",
                    self.in_memory(),
                ),
            ];
            match listed {
                Ok(page) => gauges.push(gauge(
                    "belay_executor_executions_awaiting_outcome",
                    "Executions that wait for a person to find out what a call did, counted up to 1,000",
                    page.rows.len(),
                )),
                Err(error) => tracing::warn!(%error, "Executions that wait for an outcome cannot be counted"),
            }
            gauges
        })
    }
}

fn gauge(name: &'static str, help: &'static str, value: usize) -> Gauge {
    Gauge { name, help, value: value as f64 }
}
