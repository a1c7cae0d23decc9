//! Ends of a migration.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use mcm_adopt::MigrationDirection;
use mcm_conversion::types::MigrationSide;
use mcm_insight::error::UsageError;

/// Current and new owner of the machines. One of both suffices, except for machines of another provider.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub(super) struct OwnerOptions {
    /// Current owner of the machines
    #[arg(long, value_enum)]
    from: Option<CurrentOwner>,
    /// New owner of the machines
    #[arg(long, value_enum)]
    to: Option<NewOwner>,
}

/// Current owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CurrentOwner {
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
enum NewOwner {
    /// Cluster API core with the infrastructure provider mcm
    Capi,
    /// Cluster API core with the infrastructure provider for AWS (CAPA) or Google Cloud (CAPG)
    Other,
    /// The MCM controllers: mcm run
    Native,
}

impl OwnerOptions {
    /// The machines are those of VMs without one.
    ///
    /// # Errors
    /// They can be given to the MCM controllers only.
    pub(super) fn are_orphans(&self) -> Result<bool> {
        match (self.from, self.to) {
            (Some(CurrentOwner::Orphans), None | Some(NewOwner::Native)) => Ok(true),
            (Some(CurrentOwner::Orphans), Some(_)) => {
                bail!("this takes two migrations: first --from orphans, then --from native --to capi")
            }
            _ => Ok(false),
        }
    }

    /// The migrations, one after the other. By default between Cluster API core with mcm and the MCM controllers.
    pub(super) fn ways(&self) -> Result<Vec<MigrationDirection>> {
        let (from, to) = match (self.from, self.to) {
            (Some(CurrentOwner::StandIn), None | Some(NewOwner::Native)) => {
                return Ok(vec![MigrationDirection::FromStandIn]);
            }
            (Some(CurrentOwner::StandIn), Some(NewOwner::Capi)) => {
                return Ok(vec![MigrationDirection::FromStandIn, MigrationDirection::FromNative]);
            }
            (Some(CurrentOwner::StandIn), Some(NewOwner::Other)) => {
                bail!("this takes two migrations: first --from stand-in --to capi, then --from capi --to other")
            }
            (Some(CurrentOwner::Orphans), _) => bail!("--from orphans has no Cluster: omit --cluster"),
            (Some(CurrentOwner::Capi), to) => {
                (MigrationSide::ClusterApi, to.map_or(MigrationSide::MachineController, NewOwner::side))
            }
            (Some(CurrentOwner::Other), to) => {
                (MigrationSide::OtherProvider, to.map_or(MigrationSide::ClusterApi, NewOwner::side))
            }
            (Some(CurrentOwner::Native), to) => {
                (MigrationSide::MachineController, to.map_or(MigrationSide::ClusterApi, NewOwner::side))
            }
            (None, Some(NewOwner::Capi)) => (MigrationSide::MachineController, MigrationSide::ClusterApi),
            (None, Some(to)) => (MigrationSide::ClusterApi, to.side()),
            (None, None) => bail!("pass --from or --to"),
        };
        if from == to {
            let message = "--from and --to are the same side".to_owned();
            let hint = "--from capi --to native, or --from native --to capi".to_owned();
            bail!(UsageError { message, hint });
        }
        let way = MigrationDirection::between(from, to).context(
            "this takes two migrations: first --from other --to capi, then --from capi --to native; back, first \
             --from native --to capi, then --from capi --to other",
        )?;
        Ok(vec![way])
    }
}

impl NewOwner {
    const fn side(self) -> MigrationSide {
        match self {
            Self::Capi => MigrationSide::ClusterApi,
            Self::Other => MigrationSide::OtherProvider,
            Self::Native => MigrationSide::MachineController,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some(CurrentOwner::Capi), None, &[MigrationDirection::ToNative])]
    #[case(Some(CurrentOwner::Native), None, &[MigrationDirection::FromNative])]
    #[case(None, Some(NewOwner::Capi), &[MigrationDirection::FromNative])]
    #[case(None, Some(NewOwner::Other), &[MigrationDirection::ToOther])]
    #[case(Some(CurrentOwner::Other), None, &[MigrationDirection::FromOther])]
    #[case(Some(CurrentOwner::Other), Some(NewOwner::Capi), &[MigrationDirection::FromOther])]
    #[case(Some(CurrentOwner::StandIn), None, &[MigrationDirection::FromStandIn])]
    #[case(Some(CurrentOwner::StandIn), Some(NewOwner::Native), &[MigrationDirection::FromStandIn])]
    #[case(Some(CurrentOwner::StandIn), Some(NewOwner::Capi), &[MigrationDirection::FromStandIn, MigrationDirection::FromNative])]
    fn ends_say_which_ways_to_go(
        #[case] from: Option<CurrentOwner>,
        #[case] to: Option<NewOwner>,
        #[case] expected: &[MigrationDirection],
    ) {
        assert_eq!(OwnerOptions { from, to }.ways().unwrap(), expected);
    }

    #[rstest]
    #[case(Some(CurrentOwner::Orphans), None, Some(true))]
    #[case(Some(CurrentOwner::Orphans), Some(NewOwner::Native), Some(true))]
    #[case(Some(CurrentOwner::Orphans), Some(NewOwner::Capi), None)]
    #[case(Some(CurrentOwner::Native), None, Some(false))]
    fn orphans_are_given_to_the_native_controllers_only(
        #[case] from: Option<CurrentOwner>,
        #[case] to: Option<NewOwner>,
        #[case] expected: Option<bool>,
    ) {
        assert_eq!(OwnerOptions { from, to }.are_orphans().ok(), expected);
    }

    #[rstest]
    #[case(CurrentOwner::Other, NewOwner::Native, "this takes two migrations")]
    #[case(CurrentOwner::Native, NewOwner::Other, "this takes two migrations")]
    #[case(CurrentOwner::StandIn, NewOwner::Other, "this takes two migrations")]
    #[case(CurrentOwner::Capi, NewOwner::Capi, "the same side")]
    fn ways_that_do_not_exist_are_refused(#[case] from: CurrentOwner, #[case] to: NewOwner, #[case] expected: &str) {
        let error = OwnerOptions { from: Some(from), to: Some(to) }.ways().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
