//! The variables that a call may not set unless the operator's settings name them, by kind.
//!
//! A variable belongs here if it makes a program load or start something that its command line does not name, before or beside what it was started
//! for: a rule that trusts a program would otherwise trust whatever a plan puts there. Variables that only carry on what a command line can say of
//! the same build (`CC`, `CFLAGS`, as in `make CC=clang`) do not, nor do the offline switches of package managers, which are defaults of the sandbox.

/// Variables with one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedVariables {
    /// Their names, in which one `*` stands for any text.
    pub names: &'static [&'static str],
    /// Whether the programs that obey them compare the names without case, and take `-` for `_`.
    pub any_case: bool,
    /// The programs that obey them.
    pub reason: &'static str,
}

/// Every reserved variable.
pub const RESERVED_VARIABLES: &[ReservedVariables] = &[
    ReservedVariables {
        names: &["HOME", "PATH", "TMPDIR", "XDG_CONFIG_DIRS", "XDG_CONFIG_HOME", "XDG_DATA_DIRS", "XDG_DATA_HOME"],
        any_case: false,
        reason: "it is how programs are found, and their settings and modules",
    },
    ReservedVariables {
        names: &[
            "DYLD_*",
            "GCONV_PATH",
            "GETCONF_DIR",
            "GLIBC_*",
            "LD_*",
            "LOCPATH",
            "LTDL_LIBRARY_PATH",
            "NIX_LD",
            "NIX_LD_*",
            "NLSPATH",
        ],
        any_case: false,
        reason: "the loader and the C library load or start what it names, in every program",
    },
    ReservedVariables {
        names: &[
            "BASHOPTS",
            "BASH_ENV",
            "BASH_FUNC_*",
            "BASH_LOADABLES_PATH",
            "CDPATH",
            "ENV",
            "FPATH",
            "IFS",
            "PROMPT_COMMAND",
            "PS4",
            "SHELL",
            "SHELLOPTS",
            "ZDOTDIR",
        ],
        any_case: false,
        reason: "shells run it, or read a script or function by it, before their own script",
    },
    ReservedVariables {
        names: &["CVSEDITOR", "CVS_RSH", "GIT_*", "HGEDITOR", "HGMERGE", "HGRCPATH", "SVN_EDITOR", "SVN_SSH"],
        any_case: false,
        reason: "version control runs the programs that it names, or obeys the configuration there",
    },
    ReservedVariables {
        names: &[
            "COVERAGE_PROCESS_START",
            "COVERAGE_RCFILE",
            "IPYTHONDIR",
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_CONFIG_PATH",
            "JUPYTER_PATH",
            "PYLINTRC",
            "PYTEST_ADDOPTS",
            "PYTEST_PLUGINS",
            "PYTHON*",
            "UV_CONFIG_FILE",
            "UV_PYTHON",
        ],
        any_case: false,
        reason: "Python and its tools import what it names, or take options from it",
    },
    ReservedVariables {
        names: &["PIP_CONFIG_FILE", "PIP_PYTHON"],
        any_case: true,
        reason: "pip starts or obeys what it names; it compares parts of these names without case",
    },
    ReservedVariables {
        names: &[
            "BUN_OPTIONS",
            "NODE_OPTIONS",
            "NODE_PATH",
            "NODE_REPL_EXTERNAL_MODULE",
            "npm_execpath",
            "npm_node_execpath",
        ],
        any_case: false,
        reason: "JavaScript runtimes load what it names, or take options from it",
    },
    ReservedVariables {
        names: &[
            "npm_config_browser",
            "npm_config_editor",
            "npm_config_git",
            "npm_config_global_pnpmfile",
            "npm_config_globalconfig",
            "npm_config_init_module",
            "npm_config_node",
            "npm_config_node_gyp",
            "npm_config_node_options",
            "npm_config_onload_script",
            "npm_config_pnpmfile",
            "npm_config_prefix",
            "npm_config_python",
            "npm_config_script_shell",
            "npm_config_shell",
            "npm_config_userconfig",
            "npm_config_viewer",
            "pnpm_config_global_pnpmfile",
            "pnpm_config_node_options",
            "pnpm_config_pnpmfile",
            "pnpm_config_script_shell",
            "yarn_inject_environment_files",
            "yarn_plugins",
            "yarn_rc_filename",
            "yarn_yarn_path",
        ],
        any_case: true,
        reason: "npm, pnpm and Yarn start or load what it names; they compare these names without case",
    },
    ReservedVariables {
        names: &[
            "ANT_ARGS",
            "ANT_OPTS",
            "CLASSPATH",
            "GRADLE_OPTS",
            "IBM_JAVA_OPTIONS",
            "JAVA_OPTS",
            "JAVA_TOOL_OPTIONS",
            "JDK_JAVAC_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "LEIN_JVM_OPTS",
            "MAVEN_OPTS",
            "OPENJ9_JAVA_OPTIONS",
            "SBT_OPTS",
            "_JAVA_OPTIONS",
        ],
        any_case: false,
        reason: "Java virtual machines, and what starts them, take options and classes from it",
    },
    ReservedVariables {
        names: &[
            "COMPlus_GCName",
            "CORECLR_*",
            "COR_*",
            "DOTNET_ADDITIONAL_DEPS",
            "DOTNET_GCName",
            "DOTNET_GCPath",
            "DOTNET_SHARED_STORE",
            "DOTNET_STARTUP_HOOKS",
            "NUGET_CREDENTIALPROVIDERS_PATH",
            "NUGET_NETCORE_PLUGIN_PATHS",
            "NUGET_NETFX_PLUGIN_PATHS",
            "NUGET_PLUGIN_PATHS",
        ],
        any_case: false,
        reason: ".NET loads what it names",
    },
    ReservedVariables {
        names: &[
            "CustomAfterMicrosoftCommonTargets",
            "CustomBeforeMicrosoftCommonTargets",
            "DirectoryBuildPropsPath",
            "DirectoryBuildTargetsPath",
            "MSBUILD_EXE_PATH",
            "MSBuildExtensionsPath",
            "MSBuildSDKsPath",
            "MSBuildUserExtensionsPath",
        ],
        any_case: true,
        reason: "MSBuild imports what it names; it takes variables as properties, without case",
    },
    ReservedVariables {
        names: &[
            "AWKLIBPATH",
            "AWKPATH",
            "CAML_LD_LIBRARY_PATH",
            "ELIXIR_ERL_OPTIONS",
            "EMACSLOADPATH",
            "ERL_AFLAGS",
            "ERL_FLAGS",
            "ERL_LIBS",
            "ERL_ZFLAGS",
            "EXINIT",
            "GEM_HOME",
            "GEM_PATH",
            "GHC_ENVIRONMENT",
            "GHC_PACKAGE_PATH",
            "GUILE_EXTENSIONS_PATH",
            "GUILE_LOAD_COMPILED_PATH",
            "GUILE_LOAD_PATH",
            "IRBRC",
            "JULIA_DEPOT_PATH",
            "JULIA_LOAD_PATH",
            "LUA_CPATH*",
            "LUA_INIT*",
            "LUA_PATH*",
            "OCTAVE_PATH",
            "PERL5*",
            "PERLLIB",
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "RUBYGEMS_GEMDEPS",
            "RUBYLIB",
            "RUBYOPT",
            "R_ENVIRON",
            "R_ENVIRON_USER",
            "R_HOME",
            "R_LIBS*",
            "R_PROFILE",
            "R_PROFILE_USER",
            "TCLLIBPATH",
            "TEXMFCNF",
            "VIMINIT",
            "VIMRUNTIME",
        ],
        any_case: false,
        reason: "other interpreters and editors load what it names, or take options from it",
    },
    ReservedVariables {
        names: &[
            "CARGO",
            "CARGO_BUILD_RUSTC",
            "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_BUILD_RUSTDOC",
            "CARGO_BUILD_RUSTDOCFLAGS",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_ENCODED_RUSTDOCFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_TARGET_*_LINKER",
            "CARGO_TARGET_*_RUNNER",
            "CARGO_TARGET_*_RUSTDOCFLAGS",
            "CARGO_TARGET_*_RUSTFLAGS",
            "CCACHE_COMPILER",
            "CCACHE_CONFIGPATH",
            "CCACHE_PATH",
            "CCACHE_PREFIX*",
            "CCC_OVERRIDE_OPTIONS",
            "CMAKE_*_COMPILER_LAUNCHER",
            "CMAKE_*_LINKER_LAUNCHER",
            "CMAKE_TOOLCHAIN_FILE",
            "COMPILER_PATH",
            "GCC_EXEC_PREFIX",
            "RUSTC",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_WRAPPER",
            "RUSTDOC",
            "RUSTDOCFLAGS",
            "RUSTFLAGS",
        ],
        any_case: false,
        reason: "it replaces or wraps a compiler, a linker or what a build starts, or gives them options that do",
    },
    ReservedVariables {
        names: &[
            "CABAL_CONFIG",
            "CABAL_DIR",
            "CARGO_ALIAS_*",
            "CARGO_CREDENTIAL_ALIAS_*",
            "CARGO_HOME",
            "CARGO_REGISTRIES_*_CREDENTIAL_PROVIDER",
            "CARGO_REGISTRY_CREDENTIAL_PROVIDER",
            "CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS",
            "CLJ_CONFIG",
            "COMPOSER_HOME",
            "CONAN_HOME",
            "CONAN_USER_HOME",
            "CONFIG_SHELL",
            "CONFIG_SITE",
            "GNUMAKEFLAGS",
            "GOAUTH",
            "GOCACHEPROG",
            "GOENV",
            "GOFLAGS",
            "GRADLE_USER_HOME",
            "LEIN_HOME",
            "MAKEFILES",
            "MAKEFLAGS",
            "SCONSFLAGS",
            "STACK_ROOT",
        ],
        any_case: false,
        reason: "build tools and package managers take options, commands or settings from it",
    },
    ReservedVariables {
        names: &[
            "ASDF_*",
            "DOTNET_ROOT*",
            "GOROOT",
            "JAVA_HOME",
            "MISE_*",
            "NODENV_*",
            "PYENV_*",
            "RBENV_*",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
        ],
        any_case: false,
        reason: "it chooses the toolchain that is started under the usual names",
    },
    ReservedVariables {
        names: &[
            "AWS_PAGER",
            "BAT_PAGER",
            "BROWSER",
            "DELTA_PAGER",
            "EDITOR",
            "FCEDIT",
            "FZF_DEFAULT_COMMAND",
            "FZF_DEFAULT_OPTS",
            "GH_BROWSER",
            "GH_EDITOR",
            "GH_PAGER",
            "KUBE_EDITOR",
            "LESS",
            "LESSCLOSE",
            "LESSEDIT",
            "LESSKEY*",
            "LESSOPEN",
            "MANPAGER",
            "PAGER",
            "PSQLRC",
            "PSQL_EDITOR",
            "PSQL_PAGER",
            "RIPGREP_CONFIG_PATH",
            "RSYNC_CONNECT_PROG",
            "RSYNC_RSH",
            "SSH_ASKPASS",
            "SUDO_ASKPASS",
            "SUDO_EDITOR",
            "SYSTEMD_PAGER",
            "TAR_OPTIONS",
            "VALGRIND_LIB",
            "VALGRIND_OPTS",
            "VISUAL",
            "ZIPOPT",
        ],
        any_case: false,
        reason: "programs start it, or what it names, as a pager, an editor or another helper",
    },
    ReservedVariables {
        names: &[
            "ANSIBLE_*_PLUGINS",
            "ANSIBLE_CONFIG",
            "ANSIBLE_LIBRARY",
            "AWS_CONFIG_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
            "CLOUDSDK_CONFIG",
            "CLOUDSDK_PYTHON*",
            "CURL_HOME",
            "DOCKER_CONFIG",
            "GNUPGHOME",
            "HELM_PLUGINS",
            "KUBECONFIG",
            "PACKER_PLUGIN_PATH",
            "TERRAFORM_CONFIG",
            "TF_CLI_ARGS*",
            "TF_CLI_CONFIG_FILE",
            "WGETRC",
        ],
        any_case: false,
        reason: "clients of servers start the helpers and plugins that its settings name",
    },
    ReservedVariables {
        names: &[
            "GDAL_DRIVER_PATH",
            "GDK_PIXBUF_MODULEDIR",
            "GDK_PIXBUF_MODULE_FILE",
            "GIO_EXTRA_MODULES",
            "GIO_MODULE_DIR",
            "GI_TYPELIB_PATH",
            "GST_PLUGIN_*",
            "GTK_EXE_PREFIX",
            "GTK_MODULES",
            "GTK_PATH",
            "HDF5_PLUGIN_PATH",
            "KRB5_CONFIG",
            "LIBGL_DRIVERS_PATH",
            "LIBMYSQL_PLUGINS",
            "LIBMYSQL_PLUGIN_DIR",
            "LIBVA_DRIVERS_PATH",
            "MAGICK_CODER_MODULE_PATH",
            "MAGICK_CONFIGURE_PATH",
            "MAGICK_FILTER_MODULE_PATH",
            "MALLOC_CONF",
            "OCL_ICD_FILENAMES",
            "OCL_ICD_VENDORS",
            "ODBCINI",
            "ODBCSYSINI",
            "OPENSSL_CONF",
            "OPENSSL_ENGINES",
            "OPENSSL_MODULES",
            "QML2_IMPORT_PATH",
            "QML_IMPORT_PATH",
            "QT_PLUGIN_PATH",
            "QT_QPA_PLATFORM_PLUGIN_PATH",
            "SASL_PATH",
            "VK_ADD_LAYER_PATH",
            "VK_DRIVER_FILES",
            "VK_ICD_FILENAMES",
            "VK_LAYER_PATH",
            "_RJEM_MALLOC_CONF",
        ],
        any_case: false,
        reason: "libraries load the modules that it names, or obey the configuration there",
    },
];

/// Whether programs or loaders obey a variable before a program starts, or the sandbox sets it. A call can set it only if
/// [`crate::Settings::calls_may_set`] lists it.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED_VARIABLES.iter().any(|row| row.names.iter().any(|pattern| row.matches(pattern, name)))
}

impl ReservedVariables {
    fn matches(&self, pattern: &str, name: &str) -> bool {
        if self.any_case {
            return matches(&folded(pattern), &folded(name));
        }
        matches(pattern, name)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => pattern == name,
    }
}

/// Without case and separators: npm takes `NPM_CONFIG_Script-Shell` for `npm_config_script_shell`, and Yarn ignores repeated ones.
fn folded(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Why a call must not set a reserved variable, and how an operator can allow it.
#[must_use]
pub fn reserved_variable_problem(name: &str) -> String {
    const WHY: &str = "is reserved, because it decides what programs load or execute";
    // The settings take only such names.
    let can_be_named = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if can_be_named {
        format!("{WHY}; to let plans set it, put `commands: {{plans_may_set: [{name}]}}` in the operator's settings")
    } else {
        format!(
            "{WHY}; no setting lets plans set a name with characters other than letters, digits and `_`, or of more than {MAX_NAME_BYTES} bytes"
        )
    }
}

/// The longest name that the operator's settings take, in bytes.
const MAX_NAME_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment;

    #[test]
    fn variables_that_programs_obey_are_reserved() {
        for name in [
            "LD_PRELOAD",
            "LD_AUDIT",
            "GCONV_PATH",
            "NIX_LD",
            "NIX_LD_LIBRARY_PATH",
            "BASH_ENV",
            "BASH_FUNC_ls%%",
            "ENV",
            "SHELLOPTS",
            "BASHOPTS",
            "PS4",
            "XDG_CONFIG_HOME",
            "GIT_SSH_COMMAND",
            "PYTHONSTARTUP",
            "PYTEST_ADDOPTS",
            "NODE_OPTIONS",
            "PERL5OPT",
            "PERL5LIB",
            "RUBYOPT",
            "LUA_INIT",
            "LUA_INIT_5_4",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "JDK_JAVA_OPTIONS",
            "DOTNET_STARTUP_HOOKS",
            "CORECLR_PROFILER_PATH",
            "LESSOPEN",
            "LESSCLOSE",
            "PAGER",
            "EDITOR",
            "TAR_OPTIONS",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CMAKE_CXX_COMPILER_LAUNCHER",
            "CARGO_HOME",
            "GOFLAGS",
            "MAKEFLAGS",
            "MAKEFILES",
            "GRADLE_USER_HOME",
            "JAVA_HOME",
            "KUBECONFIG",
            "OPENSSL_CONF",
            "GIO_MODULE_DIR",
            "GST_PLUGIN_PATH_1_0",
            "MALLOC_CONF",
            "npm_config_script_shell",
            "NPM_CONFIG_SCRIPT_SHELL",
            "Npm_Config_Script-Shell",
            "npm_config_userconfig",
            "PNPM_CONFIG_PNPMFILE",
            "YARN_YARN_PATH",
            "yarn_plugins",
            "PIP_CONFIG_FILE",
            "PIP_Python",
            "custombeforemicrosoftcommontargets",
        ] {
            assert!(is_reserved(name), "{name}");
        }
    }

    #[test]
    fn other_variables_are_not() {
        for name in [
            "CI",
            "DEBUG",
            "TRACEPARENT",
            "RUST_LOG",
            "RUST_BACKTRACE",
            "CARGO_TERM_COLOR",
            "CARGO_TARGET_DIR",
            "CARGO_INCREMENTAL",
            "CC",
            "CXX",
            "CFLAGS",
            "LDFLAGS",
            "GOOS",
            "GOARCH",
            "GOCACHE",
            "CGO_ENABLED",
            "NODE_ENV",
            "FORCE_COLOR",
            "NO_COLOR",
            "JOBS",
            "npm_config_loglevel",
            "NPM_CONFIG_REGISTRY",
            "YARN_CACHE_FOLDER",
            "PIP_INDEX_URL",
            "DOTNET_CLI_TELEMETRY_OPTOUT",
            "DATABASE_URL",
            "ENVIRONMENT",
            "PATHS",
            "HOMEPAGE",
            "ld_preload",
            "_LD_PRELOAD",
            "PYTHO",
            "CARGO_TARGET_RUNNER_DIR",
        ] {
            assert!(!is_reserved(name), "{name}");
        }
        // The guide says that calls can override the offline switches.
        let switches = environment::OFFLINE.iter();
        for (name, _) in switches {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn the_table_has_one_star_a_name_and_each_name_once() {
        let mut seen = std::collections::BTreeSet::new();
        for row in RESERVED_VARIABLES {
            assert!(!row.reason.is_empty() && !row.reason.ends_with('.'), "{row:?}");
            assert!(row.names.is_sorted(), "{row:?}");
            for name in row.names {
                assert!(name.matches('*').count() <= 1 && seen.insert(*name), "{name}");
                assert!(is_reserved(&name.replace('*', "X")), "{name}");
            }
        }
    }

    /// The table in the guide is made from the one in the code: `BELAY_UPDATE=1` writes it.
    #[test]
    fn the_guide_lists_every_reserved_variable() {
        const BEGIN: &str = "<!-- reserved variables: made from services/tool-runner/sandbox/src/reserved.rs -->\n";
        const END: &str = "<!-- end -->\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/user-guide/settings.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let mut table = String::from("| variables | why |\n|---|---|\n");
        for row in RESERVED_VARIABLES {
            let names: Vec<String> = row.names.iter().map(|name| format!("`{name}`")).collect();
            table.push_str(&format!("| {} | {} |\n", names.join(" "), row.reason));
        }
        let (before, rest) = guide.split_once(BEGIN).expect("the table has a beginning");
        let (shown, after) = rest.split_once(END).expect("the table has an end");
        if std::env::var_os("BELAY_UPDATE").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        } else {
            assert_eq!(shown, table, "run this test with BELAY_UPDATE=1");
        }
    }
}
