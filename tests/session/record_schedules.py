"""Prints the table of schedule_test.cc: learning rates by torch.optim.lr_scheduler (PyTorch 2.x)."""
import torch,warnings; warnings.simplefilter("ignore")
from torch.optim.lr_scheduler import *
def run(make,lr,n):
    p=torch.nn.Parameter(torch.zeros(1)); o=torch.optim.SGD([p],lr=lr); s=make(o); out=[]
    for _ in range(n):
        out.append(o.param_groups[0]["lr"]); o.step(); s.step()
    return out
def seq(first,second,m): return lambda o: SequentialLR(o,[first(o),second(o)],[m])
cases={
 "linear":(lambda o: LinearLR(o,1.0,0.1,total_iters=8),0.2,11),
 "cosine":(lambda o: CosineAnnealingLR(o,8,eta_min=0.001),0.2,9),
 "step":(lambda o: StepLR(o,3,gamma=0.5),0.2,10),
 "milestones":(lambda o: MultiStepLR(o,[2,5,6],gamma=0.1),0.2,8),
 "one_cycle":(lambda o: OneCycleLR(o,0.2,total_steps=10),0.2/25,10),
 "one_cycle_options":(lambda o: OneCycleLR(o,0.2,total_steps=12,pct_start=0.25,div_factor=10,final_div_factor=100),0.2/10,12),
 "warmup_cosine":(seq(lambda o: LinearLR(o,0.25,1.0,total_iters=4),lambda o: CosineAnnealingLR(o,6),4),0.2,10),
 "warmup_constant":(lambda o: LambdaLR(o,lambda k: min(1,k/5)),0.2,8),
 "factors":(lambda o: LambdaLR(o,lambda k:[1, .5, .25, 2, 2][k]),0.2,4),
}
for k,(m,lr,n) in cases.items():
    print('    {"%s", {%s}},'%(k,", ".join(repr(float(x)) for x in run(m,lr,n))))
