"""ML2 mechanism driver of OpenStack Neutron for Sluice."""
