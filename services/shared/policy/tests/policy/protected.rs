//! Protected paths and flags, which require approval whatever the settings are.

use belay_policy::Policy;

use crate::support::*;

/// A policy that allows everything else.
fn open(rest: &str) -> Policy {
    policy(&format!("{{file_write: auto, file_delete: auto, terminal_commands: auto, {rest}}}"))
}

#[test]
fn protected_paths_require_approval_when_writing_is_allowed() {
    let open = open("rules: []");
    for path in [
        ".git/hooks/pre-commit",
        ".git/hooks",
        ".git/config",
        ".git/modules/lib/hooks/post-checkout",
        ".git/modules/a/b/config",
        ".git",
        ".github/workflows/ci.yml",
        ".github/workflows/sub/ci.yml",
        ".github",
        ".vscode/tasks.json",
        ".vscode",
        ".idea/workspace.xml",
        ".envrc",
        ".husky/pre-push",
        ".mcp.json",
        ".claude/settings.json",
        ".codex/config.toml",
        ".agent/memory/a",
        "AGENTS.md",
        "CLAUDE.md",
        // In a folder.
        "vendor/lib/.git/hooks/pre-commit",
        "web/AGENTS.md",
        "web/.belay",
        "web/.Belay/commits/1/0",
        "web/.vscode/settings.json",
        // The same file on a case-insensitive file system.
        ".GIT/Hooks/pre-commit",
        ".Git/config",
        "agents.md",
        "Claude.MD",
        ".VSCODE/tasks.json",
        ".vſcode/tasks.json",
        ".hus\u{212a}y/pre-push",
    ] {
        for kind in [FileWrite, FileDelete, Terminal] {
            for change in [Created, Modified, Deleted] {
                let decision = effect(&open, kind, Auto, &[("ok", Created, &[]), (path, change, &[])]);
                assert_eq!(brief(&decision), (Prompt, "protected"), "{path} {kind:?} {change:?}");
                assert!(decision.reason.contains("is a protected path"), "{decision:?}");
            }
        }
    }
    for path in [
        ".git/HEAD",
        ".git/objects/ab/cd",
        ".git/refs/heads/config",
        ".gitignore",
        "git/hooks/x",
        "hooks/pre-commit",
        ".envrc.example",
        "AGENTS.md.txt",
        "MYAGENTS.md",
        "src/agents.md.rs",
        "vscode/tasks.json",
        "Makefile",
        "package.json",
        "build.rs",
        "src/head/mod.rs",
        "src/head",
        ".git/refs/heads/Jenkinsfile",
        ".git/logs/refs/heads/.envrc",
        ".git/modules/lib/objects/ab/cd",
        ".git/modules/lib/HEAD",
        ".git/COMMIT_EDITMSG",
        ".git/index.lock",
        ".env.example",
        "src/cursor/main.rs",
        ".editorconfig",
        "ünïcode/ſ",
        // Beside a protected path, but an ordinary name.
        ".env.sample",
        "env.production",
        ".venv/lib/python3.12/site-packages/requests/api.py",
        ".venv/lib/python3.12/site-packages/pip/__main__.py",
        ".venv/bin/pip",
        "bin/python-lint.sh",
        "src/bin/activate.rs",
        "node_modules/eslint/lib/index.js",
        "src/eslint-config.js",
        "src/owners/mod.rs",
        "app/owners",
        "owners.json",
        "src/startup.rs",
        "src/restartup.m",
        "main.tf",
        "variables.tf",
        "overrides.tf",
        "terraform.tfvars",
        "prod.tfvars",
        "docker-compose.yml",
        "compose.yaml",
        "build.gradle",
        "settings.gradle.kts",
        "app/src/main/resources/application.properties",
        "Directory.Packages.props",
        "src/Project.csproj",
        "pyproject.toml",
        "setup.cfg",
        "tox.ini",
        "conftest.py",
        "CMakeLists.txt",
        "tsconfig.json",
        "vite.config.ts",
        "jest.config.js",
        "docs/skill.md",
        "skills/go/README.md",
        "src/hooks/useAuth.ts",
        "hooks/commit-msg",
        "src/bsp/tree.c",
        "src/sl/config",
        "textmf.cnf",
        "docs/erlang/intro.md",
        "src/jupyter/kernel.py",
        "pipelines/train.py",
        "src/platform/linux.rs",
        "ruler.toml",
        "my.cnf.md",
    ] {
        assert_eq!(effect(&open, Terminal, Auto, &[(path, Created, &[])]).verdict, Auto, "{path}");
    }
}

#[test]
fn protection_can_be_switched_off_and_is_opened_only_by_name() {
    let hook = [(".git/hooks/pre-commit", Created, &[][..])];
    assert_eq!(effect(&open("protect: false"), Terminal, Auto, &hook).verdict, Auto);
    let all = open("rules: [{id: all, on: effect, paths: ['**'], decide: auto}]");
    assert_eq!(
        brief(&effect(&all, Terminal, Auto, &hook)),
        (Prompt, "protected"),
        "`**` alone does not cover protected paths"
    );
    let named = open("rules: [{id: hooks, on: effect, paths: ['.git/**'], flags: [protected], decide: auto}]");
    assert_eq!(brief(&effect(&named, Terminal, Auto, &hook)), (Auto, "hooks"));
    assert_eq!(brief(&effect(&named, Terminal, Auto, &[("AGENTS.md", Created, &[])])), (Prompt, "protected"));
    let never = open("protect: false, rules: [{id: never, on: effect, flags: [protected], decide: deny}]");
    assert_eq!(brief(&effect(&never, Terminal, Auto, &hook)), (Deny, "never"));
    let strict = open("rules: [{id: strict, on: effect, paths: ['.git/**'], decide: deny}]");
    assert_eq!(brief(&effect(&strict, Terminal, Auto, &hook)), (Deny, "strict"), "a rule may be stricter");
    assert_eq!(
        brief(&granted(&open("rules: []"), FileWrite, Prompt, &[".envrc"], &[(".envrc", Created, &[])])),
        (Auto, "granted")
    );
}

#[test]
fn some_flags_require_approval_and_some_only_inform() {
    let open = open("rules: []");
    for (flag, verdict) in [
        ("link_leaves", Prompt),
        ("set_id_stripped", Prompt),
        ("odd_name", Prompt),
        ("case_collision", Prompt),
        ("bare_repository", Prompt),
        ("named_by_config", Prompt),
        ("something_new", Prompt),
        ("executable", Auto),
        ("made_writable", Auto),
    ] {
        for kind in [FileWrite, Terminal] {
            let decision = effect(&open, kind, Auto, &[("a", Created, &["executable", flag])]);
            assert_eq!(decision.verdict, verdict, "{flag}");
            assert_eq!(decision.rule == flag, verdict == Prompt, "{flag}: {decision:?}");
        }
    }
}

#[test]
fn a_flag_is_relaxed_by_a_rule_that_names_it() {
    let open = open(
        "rules: [{id: links, on: effect, paths: ['links/**'], flags: [link_leaves], decide: auto}, {id: out, on: effect, paths: ['out/**'], decide: auto}]",
    );
    let did = |path, flags| effect(&open, Terminal, Auto, &[(path, Created, flags)]);
    assert_eq!(brief(&did("links/python", &["link_leaves"])), (Auto, "links"));
    assert_eq!(brief(&did("links/python", &["link_leaves", "odd_name"])), (Prompt, "odd_name"));
    assert_eq!(brief(&did("out/python", &["link_leaves"])), (Prompt, "link_leaves"));
    assert_eq!(brief(&did("out/python", &["executable"])), (Auto, "out"));
}

/// Paths through which one write takes over a tool, an agent, a shell, an editor, a build server or a repository.
#[test]
fn files_that_programs_obey_require_approval() {
    let preset = policy("{}");
    for path in [
        ".git/info/attributes",
        ".git/objects/info/alternates",
        ".git/worktrees/w/config.worktree",
        ".git/rebase-merge/git-rebase-todo",
        ".gitmodules",
        ".gitattributes",
        "bare/HEAD",
        "lib.git/config",
        "lib.git/hooks/update",
        ".gitlab-ci.yml",
        ".gitlab/ci/build.yml",
        "Jenkinsfile",
        "ci/Jenkinsfile.release",
        ".circleci/config.yml",
        ".travis.yml",
        "azure-pipelines.yml",
        "bitbucket-pipelines.yml",
        ".buildkite/pipeline.yml",
        ".drone.yml",
        ".woodpecker/test.yml",
        ".cirrus.yml",
        "appveyor.yml",
        ".github/dependabot.yml",
        ".github/copilot-instructions.md",
        ".github/CODEOWNERS",
        "renovate.json",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        ".gitpod.yml",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".githooks/pre-push",
        ".cursor/rules/a.mdc",
        ".cursorrules",
        "GEMINI.md",
        ".gemini/settings.json",
        ".clinerules",
        ".windsurfrules",
        ".roo/rules.md",
        ".aider.conf.yml",
        ".continue/config.json",
        ".agents/x",
        ".goosehints",
        "opencode.json",
        ".zed/settings.json",
        ".fleet/run.json",
        "x.code-workspace",
        ".vimrc",
        ".exrc",
        ".dir-locals.el",
        ".cargo/config.toml",
        ".cargo/config",
        "rust-toolchain.toml",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        ".yarn/releases/yarn-4.cjs",
        "mise.toml",
        ".mise.toml",
        ".tool-versions",
        ".nvmrc",
        "pip.conf",
        "sitecustomize.py",
        ".venv/lib/python3/site-packages/x.pth",
        ".mvn/extensions.xml",
        "gradle/wrapper/gradle-wrapper.properties",
        ".bazelrc",
        ".gdbinit",
        ".ssh/authorized_keys",
        ".bashrc",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".config/fish/config.fish",
        ".env",
        ".netrc",
        "sub/folder/.NPMRC",
        "sub/GEMINI.MD",
        // Version control.
        ".sl/config",
        "_darcs/prefs/defaults",
        ".pijul/config",
        // Opened folders.
        ".bsp/sbt.json",
        "buildServer.json",
        ".venv/bin/python",
        ".venv/bin/python3.12",
        ".venv/bin/activate",
        ".venv/bin/activate.fish",
        ".venv/bin/activate_this.py",
        "services/api/venv/bin/python3",
        ".venv/Scripts/Activate.ps1",
        ".venv/pyvenv.cfg",
        "hie.yaml",
        ".ropeproject/config.py",
        "analysis_options.yaml",
        ".pyre_configuration",
        "eslint.config.js",
        "eslint.config.mts",
        ".eslintrc.js",
        ".eslintrc",
        ".prettierrc.mjs",
        ".rubocop.yml",
        ".pylintrc",
        ".luacheckrc",
        ".formatter.exs",
        ".php-cs-fixer.php",
        ".php-cs-fixer.dist.php",
        "rust-analyzer.toml",
        "rust-project.json",
        ".ccls",
        ".theia/tasks.json",
        ".lazy.lua",
        ".neoconf.json",
        ".luarc.json",
        // Environments.
        ".env.development",
        ".env.production",
        ".env.test",
        ".env.production.local",
        ".flaskenv",
        ".rvmrc",
        ".powrc",
        // Started in the folder.
        ".latexmkrc",
        ".octaverc",
        "startup.m",
        ".erlang",
        ".rdbgrc",
        ".byebugrc",
        ".mongoshrc.js",
        ".duckdbrc",
        ".my.cnf",
        ".gdbearlyinit",
        ".valgrindrc",
        "jupyter_server_config.py",
        "jupyter_config.json",
        ".user.ini",
        "public/.htaccess",
        // Version choosers.
        "lean-toolchain",
        ".terraform-version",
        ".php-version",
        ".swift-version",
        ".fvmrc",
        ".prototools",
        "aqua.yaml",
        ".pdm-python",
        // Builds, and what is merged into them.
        "gradle.properties",
        "Directory.Build.props",
        "src/Directory.Build.targets",
        "Directory.Build.rsp",
        "uv.toml",
        "poetry.toml",
        ".mambarc",
        "docker-compose.override.yml",
        "compose.override.yaml",
        "override.tf",
        "infra/network_override.tf",
        "infra/prod.auto.tfvars",
        // Agents.
        ".claude-plugin/plugin.json",
        "CODEBUDDY.md",
        "IFLOW.md",
        ".pr_agent.toml",
        ".coderabbit.yaml",
        "gptme.toml",
        "conductor.json",
        ".aiassistant/rules/a.md",
        ".vibe/config.toml",
        "skills/deploy/SKILL.md",
        "plugins/x/skills/deploy/SKILL.md",
        // Commits.
        ".huskyrc.js",
        "lint-staged.config.mjs",
        ".lintstagedrc",
        "commitlint.config.ts",
        "grumphp.yml",
        "grumphp.yml.dist",
        ".hooks/pre-push",
        "git-hooks/pre-commit",
        // Servers.
        ".zuul.yaml",
        ".vela.yml",
        ".prow.yaml",
        ".taskcluster.yml",
        "buddy.yml",
        ".pipelines/build.yml",
        "mergify.yml",
        ".mergify/config.yml",
        "OWNERS",
        "pkg/OWNERS",
        ".pullapprove.yml",
        // Trust.
        ".sops.yaml",
        ".password-store/.gpg-id",
        "secrets/.gpg-id",
        ".azure/config",
        ".boto",
        ".databrickscfg",
        // Homes.
        ".bash_completion",
        ".xonshrc",
        ".config/powershell/profile.ps1",
        ".config/elvish/rc.elv",
        ".forward",
        ".procmailrc",
        "SUB/.GitLab-CI.yml",
    ] {
        let decision = effect(&preset, FileWrite, Auto, &[(path, Created, &[])]);
        assert_eq!(brief(&decision), (Prompt, "protected"), "{path}");
        assert!(belay_policy::protection(path).is_some(), "{path}");
    }
}

#[test]
fn every_row_of_the_table_protects_what_it_names_at_any_depth() {
    for row in belay_policy::PROTECTED_PATHS {
        assert!(!row.reason.is_empty() && !row.reason.ends_with('.'), "{row:?}");
        for path in row.paths {
            let plain = path.replace('*', "x");
            for path in [plain.clone(), format!("a/b/{plain}")] {
                assert!(belay_policy::protection(&path).is_some(), "{path}");
            }
        }
    }
}
