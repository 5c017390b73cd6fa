//! The part of libtest's command line that cargo, nextest and people use. Other options are accepted and ignored.

/// The argument by which the binary starts itself for one seed.
pub(super) const CHILD: &str = "--child";
/// The last argument of a child that shows every disk operation.
pub(super) const DETAILS: &str = "--details";

/// libtest's options that take the next argument as their value.
const WITH_VALUE: [&str; 6] = ["--format", "--test-threads", "--color", "--logfile", "--shuffle-seed", "-Z"];

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) list: bool,
    /// List names only.
    pub(super) terse: bool,
    /// Run only ignored tests, of which there are none.
    pub(super) ignored: bool,
    pub(super) filter: Filter,
    pub(super) child: Option<Child>,
}

/// The arguments of a run of one seed, in this process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) scenario: String,
    pub(super) seed: u64,
    pub(super) show_details: bool,
}

/// The selected names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    wanted: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
}

impl Filter {
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.skipped.is_empty()
    }

    pub(super) fn selects(&self, name: &str) -> bool {
        let matches = |pattern: &String| {
            if self.exact { name == pattern } else { name.contains(pattern.as_str()) }
        };
        (self.wanted.is_empty() || self.wanted.iter().any(matches)) && !self.skipped.iter().any(matches)
    }
}

impl Arguments {
    /// Reads the arguments after the binary's name.
    pub(super) fn parse(arguments: impl IntoIterator<Item = String>) -> Self {
        let mut arguments = arguments.into_iter();
        let mut parsed = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => parsed.list = true,
                "--format" => parsed.terse = arguments.next().as_deref() == Some("terse"),
                "--format=terse" => parsed.terse = true,
                "--ignored" => parsed.ignored = true,
                "--exact" => parsed.filter.exact = true,
                "--skip" => parsed.filter.skipped.extend(arguments.next()),
                CHILD => parsed.child = Child::parse(&mut arguments),
                option if WITH_VALUE.contains(&option) => drop(arguments.next()),
                option if option.starts_with("--skip=") => {
                    parsed.filter.skipped.push(option["--skip=".len()..].to_owned())
                }
                option if option.starts_with('-') => {}
                _ => parsed.filter.wanted.push(argument),
            }
        }
        parsed
    }
}

impl Child {
    fn parse(arguments: &mut impl Iterator<Item = String>) -> Option<Self> {
        let scenario = arguments.next()?;
        let seed = arguments.next()?.parse().ok()?;
        Some(Self { scenario, seed, show_details: arguments.next().as_deref() == Some(DETAILS) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Arguments {
        Arguments::parse(arguments.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn filters_as_libtest_does() {
        let part = parse("log --nocapture --test-threads 3 --skip planted").filter;
        assert_eq!(["append_log", "log::planted", "other"].map(|name| part.selects(name)), [true, false, false]);
        let exact = parse("--exact append_log").filter;
        assert_eq!(["append_log", "append_log::holds"].map(|name| exact.selects(name)), [true, false]);
        assert!(parse("").filter.selects("anything"));
    }

    #[test]
    fn knows_what_nextest_asks() {
        let arguments = parse("--list --format terse --ignored");
        assert!(arguments.list && arguments.terse && arguments.ignored && arguments.filter.is_empty());
    }

    #[test]
    fn reads_a_child_of_its_own() {
        let child = Child { scenario: "append_log".to_owned(), seed: 17, show_details: true };
        assert_eq!(parse("--child append_log 17 --details").child, Some(child));
    }
}
