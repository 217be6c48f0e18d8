"""What every process of a trial needs: its rank, its reports, kinds of death, silence."""
