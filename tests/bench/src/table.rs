//! The table that is printed, and what each row of it is held against.

use std::fmt;

use serde::{Serialize, Serializer};

/// The range that a figure has to be in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Between(f64, f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
            Self::Between(least, most) => (least..=most).contains(&figure),
        }
    }
}

/// The target of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The ratio of Belay to what it is compared with.
    Ratio(Bound),
    /// Belay's own figure, which does not depend on how fast the machine is.
    Figure(Bound),
    /// Belay's own figure, which does: told, and never a reason to fail.
    Time(Bound),
}

impl Target {
    fn bound(self) -> Bound {
        match self {
            Self::Ratio(bound) | Self::Figure(bound) | Self::Time(bound) => bound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self, Self::Ratio(_)) {
            f.write_str("ratio ")?;
        }
        match self.bound() {
            Bound::AtMost(most) => write!(f, "≤ {most}"),
            Bound::AtLeast(least) => write!(f, "≥ {least}"),
            Bound::Between(least, most) => write!(f, "{least:.1}–{most:.1}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A metric.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    /// The target's number; empty where there is none.
    pub(crate) id: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    /// The side that Belay is compared with: mostly the floor.
    pub(crate) floor: Option<f64>,
    pub(crate) belay: Option<f64>,
    /// The median of the rounds' ratios of Belay to the other figure; not the ratio of the two medians.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Option<Target>,
    /// Why there is no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

impl Row {
    /// Whether the target is reached; nothing when there is none or it was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let target = self.target?;
        let figure = match target {
            Target::Ratio(_) => self.ratio,
            Target::Figure(_) | Target::Time(_) => self.belay,
        };
        figure.map(|figure| target.bound().holds(figure))
    }

    /// Whether `--check` has to fail because of it.
    pub(crate) fn fails(&self) -> bool {
        self.met() == Some(false) && !matches!(self.target, Some(Target::Time(_)))
    }
}

/// The rows, in columns. `other` is what Belay is compared with.
pub(crate) fn draw(other: &str, rows: &[Row]) -> String {
    let mut lines = vec![["", "metric", other, "belay", "ratio", "target", "met?"].map(String::from)];
    for row in rows {
        let metric = if row.unit.is_empty() { row.metric.into() } else { format!("{} ({})", row.metric, row.unit) };
        let met = match (&row.note, row.met()) {
            (Some(note), _) => format!("not measured: {note}"),
            (None, Some(met)) => if met { "yes" } else { "NO" }.into(),
            (None, None) => String::new(),
        };
        let target = row.target.map(|target| target.to_string()).unwrap_or_default();
        lines.push([row.id.into(), metric, figure(row.floor), figure(row.belay), figure(row.ratio), target, met]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut drawn = String::new();
    for line in &lines {
        let cell = |column: usize| {
            let (text, width) = (&line[column], widths[column]);
            if (2..=4).contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
        };
        let cells: Vec<String> = (0..widths.len()).map(cell).collect();
        drawn.push_str(cells.join("  ").trim_end());
        drawn.push('\n');
    }
    drawn
}

/// Three digits or so, whatever the size.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: f64, belay: f64, target: Target) -> Row {
        Row { ratio: Some(ratio), belay: Some(belay), target: Some(target), ..Row::default() }
    }

    #[test]
    fn a_target_is_held_against_what_it_names() {
        let ratio = Target::Ratio(Bound::AtMost(1.57));
        assert_eq!(row(1.57, 900.0, ratio).met(), Some(true));
        assert_eq!(row(1.58, 0.0, ratio).met(), Some(false));
        assert_eq!(row(0.42, 0.0, Target::Ratio(Bound::AtLeast(0.42))).met(), Some(true));
        assert_eq!(row(0.41, 9.0, Target::Ratio(Bound::AtLeast(0.42))).met(), Some(false));
        // Below one flush a step it is not durable.
        let flushes = Target::Figure(Bound::Between(1.0, 1.1));
        assert_eq!(
            [0.99, 1.0, 1.1, 1.11].map(|figure| row(1.0, figure, flushes).met() == Some(true)),
            [false, true, true, false]
        );
        assert_eq!(Row { target: Some(flushes), ..Row::default() }.met(), None);
    }

    #[test]
    fn a_time_is_told_and_fails_nothing() {
        assert!(row(9.0, 9.0, Target::Ratio(Bound::AtMost(2.0))).fails());
        assert!(row(9.0, 9.0, Target::Figure(Bound::AtMost(2.0))).fails());
        assert!(!row(9.0, 9.0, Target::Time(Bound::AtMost(2.0))).fails());
        assert!(!row(1.0, 1.0, Target::Ratio(Bound::AtMost(2.0))).fails());
    }

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [
            Row {
                id: "P1",
                metric: "step",
                unit: "µs",
                floor: Some(400.4),
                ..row(1.5, 600.0, Target::Ratio(Bound::AtMost(1.57)))
            },
            Row { id: "P5", metric: "flushes per step", note: Some("install strace".into()), ..Row::default() },
        ];
        let header = "    metric            floor  belay  ratio  target        met?\n";
        let lines = "\
P1  step (µs)           400    600   1.50  ratio ≤ 1.57  yes
P5  flushes per step      -      -      -                not measured: install strace
";
        assert_eq!(draw("floor", &rows), format!("{header}{lines}"));
    }
}
