//! From one side to another.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::capi::{adoption::Way, types::Side};

/// From one side to another. One of both is enough, but for machines that come from another provider.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub(super) struct Ends {
    /// Who has the machines now
    #[arg(long, value_enum)]
    from: Option<End>,
    /// Who shall have them
    #[arg(long, value_enum)]
    to: Option<End>,
}

/// An end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    /// Core of Cluster API, with the infrastructure provider mcm
    Capi,
    /// Core of Cluster API, with another infrastructure provider: that of AWS or Google Cloud
    Other,
    /// The native controllers: mcm run
    Native,
    /// The stand-in for core (only --from): the native controllers have the machines, and it shows them
    StandIn,
}

impl Ends {
    /// The ways to go, one after the other. Between core with mcm and the native controllers, unless another end is named.
    pub(super) fn ways(&self) -> Result<Vec<Way>> {
        let (from, to) = match (self.from, self.to) {
            (_, Some(End::StandIn)) => {
                bail!("machines come to the stand-in by a label of their namespace, not by mcm adopt")
            }
            (Some(End::StandIn), Some(End::Other)) => {
                bail!(
                    "these are two ways, by way of capi: first --from stand-in --to capi, then --from capi --to other"
                )
            }
            (Some(End::StandIn), None | Some(End::Native)) => return Ok(vec![Way::FromStandIn]),
            (Some(End::StandIn), Some(End::Capi)) => return Ok(vec![Way::FromStandIn, Way::FromNative]),
            (Some(from), Some(to)) if from == to => bail!("--from and --to are the same side"),
            (Some(from), Some(to)) => (from.side(), to.side()),
            (Some(from), None) => (from.side(), from.beside()),
            (None, Some(to)) => (to.beside(), to.side()),
            (None, None) => bail!("--from or --to is needed"),
        };
        let way = Way::between(from, to).context(
            "these are two ways, by way of capi: first --from other --to capi, then --from capi --to native; back, first \
             --from native --to capi, then --from capi --to other",
        )?;
        Ok(vec![way])
    }
}

impl End {
    const fn side(self) -> Side {
        match self {
            Self::Capi | Self::StandIn => Side::ClusterApi,
            Self::Other => Side::OtherProvider,
            Self::Native => Side::MachineController,
        }
    }

    /// The other end, if only one is named.
    const fn beside(self) -> Side {
        match self {
            Self::Capi => Side::MachineController,
            Self::Other | Self::Native | Self::StandIn => Side::ClusterApi,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some(End::Capi), None, &[Way::ToNative])]
    #[case(None, Some(End::Capi), &[Way::FromNative])]
    #[case(Some(End::Other), Some(End::Capi), &[Way::FromOther])]
    #[case(Some(End::StandIn), None, &[Way::FromStandIn])]
    #[case(Some(End::StandIn), Some(End::Native), &[Way::FromStandIn])]
    #[case(Some(End::StandIn), Some(End::Capi), &[Way::FromStandIn, Way::FromNative])]
    fn ends_say_which_ways_to_go(#[case] from: Option<End>, #[case] to: Option<End>, #[case] expected: &[Way]) {
        assert_eq!(Ends { from, to }.ways().unwrap(), expected);
    }

    #[rstest]
    #[case(Some(End::Other), Some(End::Native), "these are two ways")]
    #[case(Some(End::StandIn), Some(End::Other), "these are two ways")]
    #[case(Some(End::Capi), Some(End::Capi), "the same side")]
    #[case(Some(End::Native), Some(End::StandIn), "by a label of their namespace")]
    fn ways_that_do_not_exist_are_refused(#[case] from: Option<End>, #[case] to: Option<End>, #[case] expected: &str) {
        let error = Ends { from, to }.ways().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
