//! The memory of the process, which has credentials, is written to no file and shown to no other process.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Switches core dumps off, and access by other processes of the same user.
pub fn forbid() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let forbidden = setrlimit(Resource::Core, none).and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = forbidden {
        tracing::warn!(%error, "core dumps not switched off: a crash may write credentials to a file");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn a_crash_writes_no_memory_to_a_file() {
        forbid();
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
