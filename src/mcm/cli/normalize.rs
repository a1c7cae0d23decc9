//! pflag's spelling of flags, where it differs from clap's.

use std::ffi::OsString;

/// `--min_resync_period` becomes `--min-resync-period`; values and everything after a bare `--` stay as they are.
pub fn underscores_to_dashes(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut flags_ended = false;
    args.into_iter()
        .map(|arg| {
            flags_ended |= arg == "--";
            if flags_ended { arg } else { dashed(arg) }
        })
        .collect()
}

fn dashed(arg: OsString) -> OsString {
    let Some(text) = arg.to_str().filter(|text| text.starts_with("--")) else { return arg };
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
        None => text.replace('_', "-").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("--min_resync_period=1h", "--min-resync-period=1h")]
    #[case("--leader_elect", "--leader-elect")]
    #[case("--node_conditions=My_Condition", "--node-conditions=My_Condition")]
    #[case("my_namespace", "my_namespace")]
    #[case("-v_", "-v_")]
    fn only_names_of_flags_change(#[case] given: &str, #[case] normal: &str) {
        assert_eq!(underscores_to_dashes([given.into()]), [OsString::from(normal)]);
    }

    #[test]
    fn nothing_changes_after_the_end_of_flags() {
        let args = ["--", "--a_b"].map(OsString::from);
        assert_eq!(underscores_to_dashes(args.clone()), args);
    }
}
