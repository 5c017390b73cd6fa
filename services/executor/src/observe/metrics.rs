//! Metrics of the executor itself.

use belay_journal::{AnyOf, Condition, Order, Query};
use belay_proto::v1::waiting_reason::Kind;
use belay_service_kit::metrics::{Metric, MetricsSource, Reading, Unit, Values};

use crate::owned::registry::ExecutionRegistry;

/// How many executions that wait for a person to find out what a call did are counted: an operator needs to know that there are some, and a scrape
/// must not read all of them.
const MAX_COUNTED: usize = 1000;

/// How many messages for webhooks are counted, for the same reason.
const MAX_MESSAGES: usize = 10_000;

impl MetricsSource for ExecutionRegistry {
    fn metrics(&self) -> Reading<'_> {
        Box::pin(async move {
            let awaits_outcome = Query {
                namespace: None,
                filter: vec![AnyOf(vec![Condition::WaitsFor(true, Kind::Outcome.into())])],
                order: Order::NEWEST_FIRST,
                after: None,
                limit: MAX_COUNTED,
            };
            let listed = self.reading.follower.list(&awaits_outcome).await;
            let mut metrics = self.measures.read();
            metrics.push(gauge(
                "executor.execution.active",
                "Executions in memory; parked ones are not",
                self.in_memory(),
            ));
            metrics.push(gauge("belay.executor.steps_in_memory", "Steps of executions in memory", self.steps.count()));
            metrics.push(gauge(
                "belay.executor.calls_in_doubt",
                "Calls that an earlier process may have sent to the tool runner and whose end is not known yet",
                self.calls_in_doubt.count(),
            ));
            match listed {
                Ok(page) => metrics.push(gauge(
                    "belay.executor.executions_awaiting_outcome",
                    "Executions that wait for a person to find out what a call did, counted up to 1,000",
                    page.rows.len(),
                )),
                Err(error) => tracing::warn!(%error, "Executions that wait for an outcome cannot be counted"),
            }
            match self.reading.follower.read(|reader| reader.outbox_len(MAX_MESSAGES)).await {
                Ok(length) => metrics.push(gauge(
                    "belay.executor.webhook.messages",
                    "Messages that webhooks have not accepted yet, counted up to 10,000",
                    length,
                )),
                Err(error) => tracing::warn!(%error, "Messages for webhooks cannot be counted"),
            }
            let lengths = [("notices", self.notices.len()), ("acknowledgements", self.acknowledgements.len())];
            let lengths = lengths.map(|(queue, length)| (vec![("queue", queue)], length as f64));
            metrics.push(Metric {
                name: "belay.executor.queue.length",
                help: "Messages that wait to be sent: notices to the approval gate, acknowledgements to the tool runner",
                unit: Unit::None,
                values: Values::Gauge(lengths.into()),
            });
            metrics
        })
    }
}

fn gauge(name: &'static str, help: &'static str, value: usize) -> Metric {
    Metric::gauge(name, help, Unit::None, value as f64)
}
