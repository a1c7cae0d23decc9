//! The name under which the program was called.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
};

/// The file that kubectl runs for `kubectl mcm`.
const PLUGIN: &str = "kubectl-mcm";
/// The plugin as its users call it.
pub(super) const PLUGIN_NAME: &str = "kubectl mcm";

/// The name in the path of a program.
pub(super) fn name_in(program: &OsStr) -> &str {
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_suffix(".exe").unwrap_or(name)
}

/// The program of this name is a plugin of kubectl.
pub(super) fn is_plugin(name: &str) -> bool {
    name == PLUGIN
}

/// The name under which a plugin of kubectl is called; `None` if this process is none.
pub(super) fn plugin_name() -> Option<&'static str> {
    let program: OsString = env::args_os().next().unwrap_or_default();
    is_plugin(name_in(&program)).then_some(PLUGIN_NAME)
}
