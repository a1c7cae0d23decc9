//! Ends of a migration.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::cli::error::Misuse;
use mcm_adopt::Way;
use mcm_conversion::types::Side;

/// Current and new owner of the machines. One of both suffices, except for machines of another provider.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub(super) struct Ends {
    /// Current owner of the machines
    #[arg(long, value_enum)]
    from: Option<Start>,
    /// New owner of the machines
    #[arg(long, value_enum)]
    to: Option<End>,
}

/// Current owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Start {
    /// Cluster API core with the infrastructure provider mcm
    Capi,
    /// Cluster API core with the infrastructure provider for AWS (CAPA) or Google Cloud (CAPG)
    Other,
    /// The MCM controllers: mcm run
    Native,
    /// The MCM controllers, with the stand-in for Cluster API core
    StandIn,
    /// None: VMs whose machines were lost, for the MCM controllers. Without --cluster
    Orphans,
}

/// New owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    /// Cluster API core with the infrastructure provider mcm
    Capi,
    /// Cluster API core with the infrastructure provider for AWS (CAPA) or Google Cloud (CAPG)
    Other,
    /// The MCM controllers: mcm run
    Native,
}

impl Ends {
    /// Whether the machines are those of VMs without one.
    ///
    /// # Errors
    /// They can be given to the MCM controllers only.
    pub(super) fn are_orphans(&self) -> Result<bool> {
        match (self.from, self.to) {
            (Some(Start::Orphans), None | Some(End::Native)) => Ok(true),
            (Some(Start::Orphans), Some(_)) => {
                bail!("this takes two migrations: first --from orphans, then --from native --to capi")
            }
            _ => Ok(false),
        }
    }

    /// The migrations, one after the other. By default between Cluster API core with mcm and the MCM controllers.
    pub(super) fn ways(&self) -> Result<Vec<Way>> {
        let (from, to) = match (self.from, self.to) {
            (Some(Start::StandIn), None | Some(End::Native)) => return Ok(vec![Way::FromStandIn]),
            (Some(Start::StandIn), Some(End::Capi)) => return Ok(vec![Way::FromStandIn, Way::FromNative]),
            (Some(Start::StandIn), Some(End::Other)) => {
                bail!("this takes two migrations: first --from stand-in --to capi, then --from capi --to other")
            }
            (Some(Start::Orphans), _) => bail!("--from orphans has no Cluster: omit --cluster"),
            (Some(Start::Capi), to) => (Side::ClusterApi, to.map_or(Side::MachineController, End::side)),
            (Some(Start::Other), to) => (Side::OtherProvider, to.map_or(Side::ClusterApi, End::side)),
            (Some(Start::Native), to) => (Side::MachineController, to.map_or(Side::ClusterApi, End::side)),
            (None, Some(End::Capi)) => (Side::MachineController, Side::ClusterApi),
            (None, Some(to)) => (Side::ClusterApi, to.side()),
            (None, None) => bail!("pass --from or --to"),
        };
        if from == to {
            let message = "--from and --to are the same side".to_owned();
            let hint = "--from capi --to native, or --from native --to capi".to_owned();
            bail!(Misuse { message, hint });
        }
        let way = Way::between(from, to).context(
            "this takes two migrations: first --from other --to capi, then --from capi --to native; back, first \
             --from native --to capi, then --from capi --to other",
        )?;
        Ok(vec![way])
    }
}

impl End {
    const fn side(self) -> Side {
        match self {
            Self::Capi => Side::ClusterApi,
            Self::Other => Side::OtherProvider,
            Self::Native => Side::MachineController,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some(Start::Capi), None, &[Way::ToNative])]
    #[case(Some(Start::Native), None, &[Way::FromNative])]
    #[case(None, Some(End::Capi), &[Way::FromNative])]
    #[case(None, Some(End::Other), &[Way::ToOther])]
    #[case(Some(Start::Other), None, &[Way::FromOther])]
    #[case(Some(Start::Other), Some(End::Capi), &[Way::FromOther])]
    #[case(Some(Start::StandIn), None, &[Way::FromStandIn])]
    #[case(Some(Start::StandIn), Some(End::Native), &[Way::FromStandIn])]
    #[case(Some(Start::StandIn), Some(End::Capi), &[Way::FromStandIn, Way::FromNative])]
    fn ends_say_which_ways_to_go(#[case] from: Option<Start>, #[case] to: Option<End>, #[case] expected: &[Way]) {
        assert_eq!(Ends { from, to }.ways().unwrap(), expected);
    }

    #[rstest]
    #[case(Some(Start::Orphans), None, Some(true))]
    #[case(Some(Start::Orphans), Some(End::Native), Some(true))]
    #[case(Some(Start::Orphans), Some(End::Capi), None)]
    #[case(Some(Start::Native), None, Some(false))]
    fn orphans_are_given_to_the_native_controllers_only(
        #[case] from: Option<Start>,
        #[case] to: Option<End>,
        #[case] expected: Option<bool>,
    ) {
        assert_eq!(Ends { from, to }.are_orphans().ok(), expected);
    }

    #[rstest]
    #[case(Start::Other, End::Native, "this takes two migrations")]
    #[case(Start::Native, End::Other, "this takes two migrations")]
    #[case(Start::StandIn, End::Other, "this takes two migrations")]
    #[case(Start::Capi, End::Capi, "the same side")]
    fn ways_that_do_not_exist_are_refused(#[case] from: Start, #[case] to: End, #[case] expected: &str) {
        let error = Ends { from: Some(from), to: Some(to) }.ways().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
