//! Directions of a migration.

use super::{Kind, unit::MigrationUnit};
use mcm_conversion::{
    ProviderRole,
    types::{MCMMigrationStatus, MigrationSide},
};

/// A direction. A migration between the native controllers and another provider takes two migrations, by way of core
/// with the provider mcm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationDirection {
    /// From core, with the provider mcm, to the native controllers.
    ToNative,
    /// The reverse.
    FromNative,
    /// Core keeps the machines; their infrastructure provider changes from another one to mcm.
    FromOther,
    /// The reverse.
    ToOther,
    /// From the stand-in for core to the native controllers alone, which already manage the machines. Its reverse leads
    /// to core.
    FromStandIn,
}

impl MigrationDirection {
    /// All directions between two sides.
    pub const ALL: [Self; 4] = [Self::ToNative, Self::FromNative, Self::FromOther, Self::ToOther];

    /// The direction from one side to another, if there is one.
    pub fn between(from: MigrationSide, to: MigrationSide) -> Option<Self> {
        Self::ALL.into_iter().find(|way| (way.from(), way.to()) == (from, to))
    }

    /// The direction of a migration that has begun. Migrations of earlier releases had two sides and stored the former
    /// owner.
    pub fn begun(status: &MCMMigrationStatus) -> Option<Self> {
        let from = status.from?;
        let other = match from {
            MigrationSide::MachineController | MigrationSide::OtherProvider => MigrationSide::ClusterApi,
            MigrationSide::ClusterApi => MigrationSide::MachineController,
        };
        Self::between(from, status.to.unwrap_or(other))
    }

    /// The owner of the machines before the migration.
    pub const fn from(self) -> MigrationSide {
        self.sides().0
    }

    /// The owner of the machines after the migration.
    pub const fn to(self) -> MigrationSide {
        self.sides().1
    }

    const fn sides(self) -> (MigrationSide, MigrationSide) {
        match self {
            Self::ToNative | Self::FromStandIn => (MigrationSide::ClusterApi, MigrationSide::MachineController),
            Self::FromNative => (MigrationSide::MachineController, MigrationSide::ClusterApi),
            Self::FromOther => (MigrationSide::OtherProvider, MigrationSide::ClusterApi),
            Self::ToOther => (MigrationSide::ClusterApi, MigrationSide::OtherProvider),
        }
    }

    /// The reverse direction.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::ToNative | Self::FromStandIn => Self::FromNative,
            Self::FromNative => Self::ToNative,
            Self::FromOther => Self::ToOther,
            Self::ToOther => Self::FromOther,
        }
    }

    /// Core keeps the machines, and only their infrastructure provider changes.
    pub const fn keeps_core(self) -> bool {
        matches!(self, Self::FromOther | Self::ToOther)
    }

    /// The kinds of which all objects of the namespace are read.
    pub fn kinds(self, unit: &MigrationUnit) -> impl Iterator<Item = Kind> + use<> {
        let is_pool = unit.is_pool();
        let is_read = move |kind: &Kind| match kind {
            kind if self == Self::FromStandIn => kind.is_of_stand_in(),
            Kind::MachinePool | Kind::Other(_, ProviderRole::Pool) => is_pool,
            Kind::Deployment | Kind::Set => !self.keeps_core(),
            kind => self.keeps_core() || !kind.is_of_other(),
        };
        Kind::listed().filter(is_read)
    }

    /// Every kind that a plan reads, in the order of reading. Those of which single objects are read, or of the workload cluster, are
    /// last; and Secrets after all others, which name them.
    pub fn everything(self, unit: &MigrationUnit) -> impl Iterator<Item = Kind> + use<> {
        let single: &[Kind] = if self == Self::FromStandIn { &[Kind::Namespace] } else { &[Kind::Node, Kind::Secret] };
        self.kinds(unit).chain(single.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_leads_back_and_none_leads_past_core() {
        for way in MigrationDirection::ALL {
            assert_eq!(MigrationDirection::between(way.from(), way.to()), Some(way));
            assert_eq!((way.back().from(), way.back().to()), (way.to(), way.from()));
        }
        assert_eq!(MigrationDirection::between(MigrationSide::OtherProvider, MigrationSide::MachineController), None);
        assert_eq!(MigrationDirection::between(MigrationSide::MachineController, MigrationSide::OtherProvider), None);
    }

    #[test]
    fn a_migration_of_an_earlier_release_is_understood() {
        let from = |side| MCMMigrationStatus { from: Some(side), ..MCMMigrationStatus::default() };
        assert_eq!(MigrationDirection::begun(&from(MigrationSide::ClusterApi)), Some(MigrationDirection::ToNative));
        assert_eq!(
            MigrationDirection::begun(&from(MigrationSide::MachineController)),
            Some(MigrationDirection::FromNative)
        );
        assert_eq!(MigrationDirection::begun(&MCMMigrationStatus::default()), None);
    }

    #[test]
    fn a_migration_remembers_its_way() {
        for way in MigrationDirection::ALL {
            let status =
                MCMMigrationStatus { from: Some(way.from()), to: Some(way.to()), ..MCMMigrationStatus::default() };
            assert_eq!(MigrationDirection::begun(&status), Some(way));
        }
    }
}
