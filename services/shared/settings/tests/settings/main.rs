//! Settings files: what is read, what is refused and how.

mod credentials;
mod network;

use std::path::Path;

use belay_settings::{
    CacheUse, File, LogLevel, Origin, Place, ResolvedCommands, ToolOutput, ToolRecovery, Violation, rows,
    toolchains::Host,
};

/// The violations of a text, as `line field: message`.
fn rendered(text: &str) -> Vec<String> {
    let violations = File::parse(text, Some(Path::new("/home/me"))).expect_err(text);
    violations.iter().map(|Violation { field, line, message }| format!("{line} {field}: {message}")).collect()
}

fn one(text: &str) -> String {
    let said = rendered(text);
    assert_eq!(said.len(), 1, "{text}\n{said:#?}");
    said.into_iter().next().unwrap()
}

#[test]
fn a_file_is_read_with_the_line_of_each_value() {
    let text = "\
log: {level: debug}
commands:
  find_toolchains: false
  read_only:
    - /opt/go
    - {from: ~/sdk, at: /opt/sdk}
  path: [/opt/go/bin, /opt/sdk/bin]
  env:
    JAVA_HOME: /usr/lib/jvm/default
  plans_may_set: [PYTHONPATH]
  view: {size: 2GiB, files: 3000}
  scratch: {place: memory, tmp: 512MiB}
  reserve: {size: 5GiB, files: default}
  limits:
    processes: 200
    file_size: unlimited
    cpu_time: 10m
  stop_grace: 2m
  caches:
    cargo: keep
    npm: off
    sbt: {use: read, from: ~/.sbt/boot, at: .sbt/boot}
";
    let settings = File::parse(text, Some(Path::new("/home/me"))).unwrap();
    assert_eq!((settings.log.level.value, settings.log.level.origin), (LogLevel::Debug, Origin::Line(1)));
    let commands = settings.commands;
    assert!(!commands.find_toolchains.value);
    assert_eq!(commands.read_only[1].value.from, Path::new("/home/me/sdk"));
    assert_eq!(commands.read_only[1].origin, Origin::Line(6));
    assert_eq!(commands.path[1].value, Path::new("/opt/sdk/bin"));
    assert_eq!((commands.env[0].0.as_str(), commands.env[0].1.value.as_str()), ("JAVA_HOME", "/usr/lib/jvm/default"));
    assert_eq!(commands.plans_may_set[0].value, "PYTHONPATH");
    assert_eq!((&commands.scratch.place.value, commands.scratch.tmp.value), (&Place::Memory, 512 << 20));
    assert_eq!(commands.scratch.home.origin, Origin::Default);
    assert_eq!((commands.view.size.value, commands.view.files.value), (2 << 30, 3000));
    assert_eq!((commands.reserve.size.value, commands.reserve.files.value), (Some(5 << 30), None));
    assert_eq!((commands.limits.processes.value, commands.limits.processes.origin.clone()), (200, Origin::Line(15)));
    assert_eq!((commands.limits.file_size.value, commands.limits.cpu_time.value), (None, Some(600)));
    assert_eq!(commands.stop_grace.value, 120);
    let used = |name: &str| commands.caches.iter().find(|cache| cache.value.name == name).unwrap().value.clone();
    assert_eq!(
        (used("cargo").used, used("npm").used, used("go").used),
        (CacheUse::Keep, CacheUse::Off, CacheUse::Read)
    );
    assert_eq!(
        (used("sbt").from.as_deref(), used("sbt").at.as_path()),
        (Some(Path::new("/home/me/.sbt/boot")), Path::new(".sbt/boot"))
    );
}

#[test]
fn an_empty_file_gives_the_defaults() {
    for text in ["", "# nothing\n", "commands: {}\n"] {
        assert_eq!(File::parse(text, None).unwrap(), belay_settings::Settings::default(), "{text:?}");
    }
}

#[test]
fn unknown_keys_name_the_line_and_the_nearest_known_one() {
    for (text, expected) in [
        ("comands: {}", "1 comands: there is no key `comands` here; did you mean `commands`?"),
        (
            "\ncommands:\n  plan_may_set: [A]",
            "3 commands.plan_may_set: there is no key `plan_may_set` here; did you mean `plans_may_set`?",
        ),
        (
            "commands:\n  limits: {procs: 1}",
            "2 commands.limits.procs: there is no key `procs` here; use one of processes, open_files, file_size, address_space, cpu_time",
        ),
        (
            "commands:\n  scratch:\n    tmpp: 1GiB",
            "3 commands.scratch.tmpp: there is no key `tmpp` here; did you mean `tmp`?",
        ),
        (
            "commands:\n  caches:\n    cargo: {usee: keep, use: keep}",
            "3 commands.caches.cargo.usee: there is no key `usee` here; did you mean `use`?",
        ),
    ] {
        assert_eq!(one(text), expected);
    }
}

#[test]
fn a_wrong_value_is_refused_with_the_correct_form() {
    for (text, expected) in [
        ("log: {level: loud}", "1 log.level: must be one of off, error, warn, info, debug, trace"),
        ("commands:\n  find_toolchains: yes", "2 commands.find_toolchains: is text, and must be true or false"),
        (
            "commands:\n  limits:\n    processes: 4",
            "3 commands.limits.processes: must be a whole number between 16 and 4000000",
        ),
        (
            "commands: {limits: {processes: many}}",
            "1 commands.limits.processes: must be a whole number between 16 and 4000000",
        ),
        (
            "commands: {limits: {processes: -1}}",
            "1 commands.limits.processes: must be a whole number between 16 and 4000000",
        ),
        (
            "commands: {limits: {cpu_time: 10}}",
            "1 commands.limits.cpu_time: must be `unlimited`, or a whole number with a unit: 90s, 15m or 24h",
        ),
        (
            "commands: {stop_grace: 2h}",
            "1 commands.stop_grace: must be a whole number with a unit, from 0s to 1h: 10s or 2m",
        ),
        (
            "commands: {scratch: {tmp: 8GB}}",
            "1 commands.scratch.tmp: must be a size: a whole number with KiB, MiB, GiB or TiB, such as 8GiB",
        ),
        ("commands: {scratch: {tmp: 4KiB}}", "1 commands.scratch.tmp: must be at least 1MiB"),
        ("commands: {view: {size: 4KiB}}", "1 commands.view.size: must be at least 1MiB"),
        ("commands: {view: {files: 9}}", "1 commands.view.files: must be a whole number between 1000 and 1000000000"),
        (
            "commands: {reserve: {size: none}}",
            "1 commands.reserve.size: must be a size: a whole number with KiB, MiB, GiB or TiB, such as 8GiB",
        ),
        (
            "commands: {reserve: {files: 9}}",
            "1 commands.reserve.files: must be a whole number between 100 and 1000000000",
        ),
        (
            "commands: {scratch: {place: ram}}",
            "1 commands.scratch.place: must be `workspace`, `memory`, or the absolute path of a directory used only for this",
        ),
        ("commands: {env: {A: 1}}", "1 commands.env.A: is a number, and must be text: put it in quotes"),
        (
            "commands: {env: {PATH: /x}}",
            "1 commands.env.PATH: is computed from `commands.path` and the toolchains found: add the directories to `commands.path`",
        ),
        (
            "commands: {env: {A-B: x}}",
            "1 commands.env.A-B: is not a valid variable name: use letters, digits and `_`, such as JAVA_HOME",
        ),
        ("commands: {plans_may_set: PYTHONPATH}", "1 commands.plans_may_set: is text, and must be a list: write `[…]`"),
        ("commands: {caches: {cargo: write}}", "1 commands.caches.cargo: must be one of off, read, keep"),
        ("commands: []", "1 commands: is a list, and must be a mapping: `key: value`"),
    ] {
        assert_eq!(one(text), expected);
    }
}

#[test]
fn paths_are_absolute_and_never_a_home_directory_or_the_root() {
    for (path, problem) in [
        ("opt/go", "must be an absolute path"),
        ("/opt/../root", "must be an absolute path"),
        ("~other/x", "write the full path"),
        ("/", "is the whole machine"),
        ("~", "a home directory"),
        ("~/", "a home directory"),
        ("/home/me", "a home directory"),
        ("/home/other", "a home directory"),
        ("/home", "a home directory"),
        ("/root", "a home directory"),
        ("/etc", "belongs to the running system"),
        ("/run/docker.sock", "belongs to the running system"),
        ("/proc/1", "belongs to the running system"),
        ("/tmp/x", "the sandbox provides /tmp"),
    ] {
        let said = one(&format!("commands:\n  read_only:\n    - \"{path}\"\n"));
        assert!(said.starts_with("3 commands.read_only[0]: ") && said.contains(problem), "{path}: {said}");
    }
    let said = one("commands: {read_only: [{from: /opt/x, at: /workspace/x}]}");
    assert!(said.contains("the sandbox provides /workspace"), "{said}");
    let said = one("commands: {read_only: [{at: /opt/x}]}");
    assert!(said.contains("has no `from`"), "{said}");
    assert!(File::parse("commands: {read_only: [~/x]}", None).unwrap_err()[0].message.contains("HOME is not set"));
}

#[test]
fn a_search_path_must_be_visible_to_commands() {
    let said = one("commands:\n  path: [/usr/local/go/bin, /opt/go/bin]\n  read_only: [/opt/node]\n");
    assert_eq!(
        said,
        "2 commands.path[1]: commands do not see `/opt/go/bin`: add it, or its parent directory, to `commands.read_only`"
    );
    assert!(one("commands: {path: [\"/usr/bin:/usr/sbin\"]}").contains("one directory for each entry"));
    assert!(one("commands: {read_only: [/opt/x, /opt/x]}").contains("is used by an earlier entry"));
}

// A cache that commands write is never one that programs outside read.
#[test]
fn a_kept_cache_is_never_a_directory_of_the_user() {
    let said = one("commands: {caches: {cargo: {use: keep, from: ~/.cargo/registry}}}");
    assert!(said.contains("in its own directory") && said.contains("use: read"), "{said}");
    assert!(one("commands: {caches: {sbt: keep}}").contains("where commands look for it"));
    assert!(one("commands: {caches: {cargoo: keep}}").contains("did you mean `cargo`?"));
    assert!(one("commands: {caches: {sbt: {use: read, at: .sbt}}}").contains("has no `from`"));
    assert!(one("commands: {caches: {sbt: {use: keep, at: ../x}}}").contains("home directory of commands"));
    assert!(one("commands: {caches: {cargo: {use: read, from: /root}}}").contains("a home directory"));
    assert!(File::parse("commands: {caches: {sbt: {use: keep, at: .sbt}}}", None).is_ok());
}

#[test]
fn every_service_limit_is_at_least_one() {
    assert_eq!(
        one("services: {runner: {calls: 0}}"),
        "1 services.runner.calls: must be a whole number between 1 and 1000000"
    );
    assert_eq!(
        one("services: {gate: {approval: 5}}"),
        "1 services.gate.approval: there is no key `approval` here; did you mean `approvals`?"
    );
    let services = File::parse("services: {executor: {executions: 3, steps: 5, watchers: 7}}", None).unwrap().services;
    let executor = services.executor;
    assert_eq!((executor.executions.value, executor.steps.value, executor.watchers.value), (3, 5, 7));
}

/// B-26: everything is kept unless the operator says otherwise.
#[test]
fn retention_is_by_age_and_by_count() {
    let read = |text: &str| {
        let retention = File::parse(text, None).unwrap().retention;
        (retention.finished_for.value, retention.keep_last.value)
    };
    assert_eq!(read(""), (None, None));
    assert_eq!(read("retention: {finished_for: 30d, keep_last: 10000}"), (Some(30 * 86_400), Some(10_000)));
    assert_eq!(read("retention: {finished_for: 90s, keep_last: 0}"), (Some(90), Some(0)));
    assert_eq!(read("retention: {finished_for: unlimited, keep_last: unlimited}"), (None, None));
    for wrong in ["30", "0d", "-1d", "1.5d", "soon", "[]", "99999999999999999999d", "40000d"] {
        let said = one(&format!("retention: {{finished_for: {wrong}}}"));
        assert!(
            said.starts_with("1 retention.finished_for: must be `unlimited`, or a whole number with a unit"),
            "{said}"
        );
    }
    assert!(one("retention: {keep_last: many}").contains("must be a whole number between 0 and 1000000000"));
    assert!(one("retention: {keep_lst: 5}").contains("did you mean `keep_last`?"));
}

#[test]
fn all_violations_are_reported_at_once_in_line_order() {
    let said = rendered("commands:\n  path: [x]\n  limits: {processes: 0}\nlogs: {}\n");
    let lines: Vec<_> = said.iter().map(|said| said.split(' ').next().unwrap()).collect();
    assert_eq!(lines, ["2", "3", "4"], "{said:#?}");
    assert!(one("a: [").starts_with("1 "), "YAML that cannot be read");
    assert!(one("log: {}\nlog: {}\n").starts_with("2 "), "a key is written once");
    let deep = format!("commands: {}1{}", "[".repeat(60), "]".repeat(60));
    assert!(one(&deep).contains("nested deeper"));
}

#[test]
fn every_value_has_its_origin() {
    let text = "commands:\n  path: [/usr/local/go/bin]\n  limits: {processes: 200}\n  caches: {pip: off, cargo: keep}\nservices: {runner: {calls: 4}}\nretention: {finished_for: 720m}\n";
    let settings = File::parse(text, None).unwrap();
    let env = |name: &str| (name == "BELAY_LOG").then(|| "belay=debug".into());
    let file = Path::new("/etc/belay/config.yaml");
    let shown: Vec<_> = rows(&settings, &ResolvedCommands::of(settings.commands.clone(), None, &Host), &env)
        .into_iter()
        .map(|row| format!("{} = {} ({})", row.key, row.value, row.origin.shown(Some(file))))
        .collect();
    // Those of the network have a test of their own.
    let shown: Vec<_> = shown.into_iter().filter(|row| !row.starts_with("network.")).collect();
    let expected = "\
log.level = belay=debug (BELAY_LOG)
log.format = text (default)
commands.find_toolchains = false (default)
commands.read_only = none (default)
commands.path[0] = /usr/local/go/bin (/etc/belay/config.yaml:2)
commands.path = /usr/local/bin (default)
commands.path = /usr/bin (default)
commands.path = /bin (default)
commands.path = /usr/sbin (default)
commands.path = /sbin (default)
commands.env = none (default)
commands.plans_may_set = none (default)
commands.view.size = 8GiB (default)
commands.view.files = 1000000 (default)
commands.scratch.place = workspace (default)
commands.scratch.tmp = 8GiB (default)
commands.scratch.home = 8GiB (default)
commands.scratch.shm = 512MiB (default)
commands.scratch.files = 1000000 (default)
commands.reserve.size = default (1/10 of the disk, at most 1GiB) (default)
commands.reserve.files = default (1/50 of the disk's, at most 10000) (default)
commands.limits.processes = 200 (/etc/belay/config.yaml:3)
commands.limits.open_files = 1048576 (default)
commands.limits.file_size = 8GiB (default)
commands.limits.address_space = unlimited (default)
commands.limits.cpu_time = unlimited (default)
commands.asking_calls = 32 (default)
commands.stop_grace = 10s (default)
commands.caches.cargo = keep, at ~/.cargo/registry (/etc/belay/config.yaml:4)
commands.caches.npm = off (default)
commands.caches.pip = off (/etc/belay/config.yaml:4)
commands.caches.go = off (default)
commands.caches.maven = off (default)
commands.caches.gradle = off (default)
services.executor.executions = 10000 (default)
services.executor.steps = 200000 (default)
services.executor.watchers = 10000 (default)
services.runner.calls = 4 (/etc/belay/config.yaml:5)
services.gate.approvals = 10000 (default)
services.gate.previews = 16 (default)
services.gate.watchers = 10000 (default)
retention.finished_for = 12h (/etc/belay/config.yaml:6)
retention.keep_last = unlimited (default)
budgets = none (default)
secrets.rules_file = none (default)
research.roots = none (default)
research.web = none (default)
air_gapped = false (default)
local_only = false (default)";
    assert_eq!(shown.join("\n"), expected);
}

#[test]
fn a_separate_service_uses_no_toolchains_or_caches_of_a_user() {
    let text = "commands: {caches: {cargo: keep, npm: read, go: {use: read, from: /srv/go}}}";
    let commands = File::parse(text, None).unwrap().commands.without_caller();
    assert!(!commands.find_toolchains.value);
    let used: Vec<_> = commands.caches.iter().map(|cache| cache.value.used.word()).collect();
    assert_eq!(used, ["keep", "off", "off", "read", "off", "off"]);
}

/// S2-X-33: with a time limit of its own, among others.
#[test]
fn a_tool_is_declared_with_few_words_or_with_all() {
    let text = "\
tools:
  hello: {command: [hello]}
  skills.seo:
    aliases: [seo]
    title: Rates a post
    description: Rates how well a post will be found.
    command: [python3, seo.py, -n, 3, '${post}', [--lang, '${lang}']]
    cwd: skills
    env: {MODE: fast}
    parameters:
      required: [post]
      properties: {post: {type: object, minProperties: 1}, lang: {type: string}, low: {type: number, minimum: -1.5}}
    result: {type: object}
    recovery: manual
    annotations: {destructive: false, idempotent: true, open_world: true}
    timeout: 15m
";
    let tools = File::parse(text, None).unwrap().tools;
    let [hello, seo] = &tools[..] else { panic!("{tools:?}") };
    assert_eq!((hello.origin.clone(), seo.origin.clone()), (Origin::Line(2), Origin::Line(3)));
    let (hello, seo) = (&hello.value, &seo.value);
    assert_eq!((hello.output, hello.recovery), (ToolOutput::Command, ToolRecovery::Transactional));
    assert_eq!((hello.destructive, hello.idempotent, hello.open_world), (true, false, false));
    assert_eq!(hello.parameters["additionalProperties"], false);
    assert_eq!(
        (seo.name.as_str(), seo.aliases.as_slice(), seo.cwd.as_str()),
        ("skills.seo", &["seo".to_owned()][..], "skills")
    );
    assert_eq!((seo.output, seo.recovery), (ToolOutput::Json, ToolRecovery::Manual));
    assert_eq!((seo.destructive, seo.idempotent, seo.open_world), (false, true, true));
    assert_eq!(seo.timeout.as_secs(), 900);
    assert_eq!(seo.env, [("MODE".to_owned(), "fast".to_owned())]);
    assert_eq!(seo.parameters["properties"]["low"]["minimum"], -1.5);
    assert_eq!(seo.shown(), "python3 seo.py -n 3 ${post} [--lang ${lang}]");
    let settings = File::parse(text, None).unwrap();
    let rows = rows(&settings, &ResolvedCommands::of(settings.commands.clone(), None, &Host), &|_| None);
    let shown = rows.iter().find(|row| row.key == "tools.skills.seo").unwrap();
    assert_eq!((shown.value.as_str(), shown.origin.clone()), (seo.shown().as_str(), Origin::Line(3)));
}

#[test]
fn a_wrong_tool_is_refused_by_field() {
    let with = |more: &str| {
        format!(
            "tools:\n  t:\n    command: [x, '${{a}}']\n    parameters: {{required: [a], properties: {{a: {{}}, b: {{}}}}}}\n    {more}\n"
        )
    };
    let of = |command: &str| {
        format!(
            "tools:\n  t:\n    parameters: {{required: [a], properties: {{a: {{}}, bee: {{}}}}}}\n    command: {command}\n"
        )
    };
    for (text, field, message) in [
        ("tools: []".to_owned(), "1 tools", "is a list, and must be a mapping"),
        ("tools: {a b: {command: [x]}}".into(), "1 tools.a b", "is not a tool's name"),
        ("tools: {-a: {command: [x]}}".into(), "1 tools.-a", "is not a tool's name"),
        ("tools: {t: {}}".into(), "1 tools.t", "has no `command`"),
        ("tools: {t: x}".into(), "1 tools.t", "is text, and must be a mapping"),
        ("tools: {t: {comand: [x], command: [x]}}".into(), "1 tools.t.comand", "did you mean `command`?"),
        (
            "tools: {t: {command: [x], aliases: [u]}, u: {command: [x]}}".into(),
            "1 tools.u",
            "`u` is the name of another tool, too",
        ),
        ("tools: {t: {command: [x], aliases: [u v]}}".into(), "1 tools.t.aliases[0]", "is not a tool's name"),
        (of("x"), "4 tools.t.command", "is text, and must be a list"),
        (of("[]"), "4 tools.t.command", "is empty"),
        (with("preconditions: ['arguments.a >']"), "5 tools.t.preconditions[0]", "cannot be read: Syntax error"),
        (
            with("preconditions: ['output.a > 1']"),
            "5 tools.t.preconditions[0]",
            "it is an expression about `arguments`, `context`",
        ),
        (with("postconditions: true"), "5 tools.t.postconditions", "must be a list"),
        (of("['${a}', y]"), "4 tools.t.command[0]", "is the program, which no argument of a call decides"),
        (of("[['${a}']]"), "4 tools.t.command[0]", "is the program"),
        (of("['']"), "4 tools.t.command[0]", "is the program"),
        (of("[x, {a: b}]"), "4 tools.t.command[1]", "is a mapping, and must be text"),
        (of("[x, '${a']"), "4 tools.t.command[1]", "has a `${` that is not closed"),
        (of("[x, '${}']"), "4 tools.t.command[1]", "names no argument"),
        (
            of("[x, '${be}']"),
            "4 tools.t.command[1]",
            "`${be}` is not a parameter: add `be` to `parameters.properties`, or write `$${be}` for that text itself; did you mean `bee`?",
        ),
        (of("[x, '${bee}']"), "4 tools.t.command[1]", "needs `bee`, which a call may leave out"),
        (of("[sh, -c, 'echo ${a}']"), "4 tools.t.command[2]", "pass the argument as a word after the script"),
        (of("[/usr/bin/python3.11, -c, '${a}', x]"), "4 tools.t.command[2]", "is a script"),
        (of("[node, --eval, ['${a}']]"), "4 tools.t.command[2]", "is a script"),
        (of("[x, [-v]]"), "4 tools.t.command[1]", "write the words without the list"),
        (of("[x, []]"), "4 tools.t.command[1]", "is empty"),
        (
            with("parameters: 3").replacen("    parameters: {required: [a], properties: {a: {}, b: {}}}\n", "", 1),
            "4 tools.t.parameters",
            "must be a JSON Schema",
        ),
        (
            with("parameters: {type: array}").replacen(
                "    parameters: {required: [a], properties: {a: {}, b: {}}}\n",
                "",
                1,
            ),
            "4 tools.t.parameters.type",
            "must be `object`",
        ),
        (with("result: [a]"), "5 tools.t.result", "must be a JSON Schema"),
        (with("result: {type: string}\n    output: command"), "5 tools.t.result", "write `output: json`, or remove it"),
        (with("output: xml"), "5 tools.t.output", "must be one of json, text, command"),
        (with("recovery: readonly"), "5 tools.t.recovery", "did you mean `read_only`?"),
        (with("annotations: {destructive: no}"), "5 tools.t.annotations.destructive", "must be true or false"),
        (
            with("annotations: {safe: true}"),
            "5 tools.t.annotations.safe",
            "use one of destructive, idempotent, open_world",
        ),
        (with("timeout: 10"), "5 tools.t.timeout", "must be a whole number with a unit"),
        (with("timeout: 25h"), "5 tools.t.timeout", "at most 24h"),
        (with("env: {PATH: /x}"), "5 tools.t.env.PATH", "is computed from `commands.path`"),
    ] {
        let said = rendered(&text);
        assert!(
            said.iter().any(|said| said.starts_with(&format!("{field}: ")) && said.contains(message)),
            "{text}\n{field}: {message}\n{said:#?}"
        );
        assert!(said.len() <= 2, "{text}\n{said:#?}");
    }
}
