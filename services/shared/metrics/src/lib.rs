//! Metrics of a service, as values: how they are exposed is decided by those who read them.
//!
//! Names are OpenTelemetry's, with dots. The text that Prometheus reads derives its names from them.

mod counter;
mod histogram;

pub use counter::Counter;
pub use histogram::{Distribution, Histogram};

/// The attributes of a point. They are known when the program is compiled, so that an id can never be one of them.
pub type Attributes = Vec<(&'static str, &'static str)>;

/// The meaning of the numbers of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, or a unit that is part of the name.
    None,
    /// A share from 0 to 1.
    Ratio,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// A metric, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its OpenTelemetry name, such as `executor.step.duration`.
    pub name: &'static str,
    /// The meaning of the metric, in one line.
    pub help: &'static str,
    /// The unit of its numbers.
    pub unit: Unit,
    /// Its numbers.
    pub values: Values,
}

/// The numbers of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Values that rise and fall.
    Gauge(Vec<(Attributes, f64)>),
    /// The counts since the process started.
    Counter(Vec<(Attributes, u64)>),
    /// How values were distributed since the process started.
    Histogram(Vec<(Attributes, Distribution)>),
}

impl Metric {
    /// A gauge without attributes.
    pub fn gauge(name: &'static str, help: &'static str, unit: Unit, value: f64) -> Self {
        Self { name, help, unit, values: Values::Gauge(vec![(Attributes::new(), value)]) }
    }

    /// The counts of a [`Counter`].
    pub fn counter(name: &'static str, help: &'static str, counter: &Counter) -> Self {
        Self { name, help, unit: Unit::None, values: Values::Counter(counter.read()) }
    }

    /// The recordings of a [`Histogram`] of seconds.
    pub fn durations(name: &'static str, help: &'static str, histogram: &Histogram) -> Self {
        Self { name, help, unit: Unit::Seconds, values: Values::Histogram(histogram.read()) }
    }
}
