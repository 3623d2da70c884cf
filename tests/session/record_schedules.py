"""Prints the table of schedule_test.cc: learning rates from torch.optim.lr_scheduler (PyTorch 2.x)."""
import math,torch,warnings; warnings.simplefilter("ignore")
from torch.optim.lr_scheduler import *
def run(make,lr,n):
    p=torch.nn.Parameter(torch.zeros(1)); o=torch.optim.SGD([p],lr=lr); s=make(o); out=[]
    for _ in range(n):
        out.append(o.param_groups[0]["lr"]); o.step(); s.step()
    return out
def seq(first,second,m): return lambda o: SequentialLR(o,[first(o),second(o)],[m])
# transformers.get_cosine_with_hard_restarts_schedule_with_warmup and get_inverse_sqrt_schedule
def restarts(warmup,total,cycles):
    def factor(k):
        if k<warmup: return k/warmup
        done=(k-warmup)/(total-warmup)
        return 0.0 if done>=1 else 0.5*(1+math.cos(math.pi*((cycles*done)%1)))
    return factor
def inverse_root(warmup):
    scale=warmup or 10_000
    return lambda k: k/warmup if k<warmup else 1/math.sqrt((k+scale-warmup)/scale)
cases={
 "linear":(lambda o: LinearLR(o,1.0,0.0,total_iters=8),0.2,11),
 "cosine":(lambda o: CosineAnnealingLR(o,8,eta_min=0.001),0.2,9),
 "step":(lambda o: StepLR(o,3,gamma=0.5),0.2,10),
 "one_cycle":(lambda o: OneCycleLR(o,0.2,total_steps=10),0.2/25,10),
 "one_cycle_warmup":(lambda o: OneCycleLR(o,0.2,total_steps=12,pct_start=0.25),0.2/25,12),
 "warmup_cosine":(seq(lambda o: LambdaLR(o,lambda k: k/4),lambda o: CosineAnnealingLR(o,6),4),0.2,10),
 "polynomial":(lambda o: PolynomialLR(o,total_iters=8,power=1.5),0.2,10),
 "multi_step":(lambda o: MultiStepLR(o,[2,5,6],gamma=0.3),0.2,9),
 "exponential":(lambda o: ExponentialLR(o,0.9),0.2,8),
 "cosine_restarts":(lambda o: LambdaLR(o,restarts(2,12,3)),0.2,14),
 "wsd":(lambda o: LambdaLR(o,lambda k: k/2 if k<2 else 1 if k<6 else 1-0.8*min(1,(k-6)/4)),0.2,12),
 "inverse_sqrt":(lambda o: LambdaLR(o,inverse_root(0)),0.2,6),
 "warmup_inverse_sqrt":(lambda o: LambdaLR(o,inverse_root(3)),0.2,9),
 "warmup_polynomial":(seq(lambda o: LambdaLR(o,lambda k: k/4),lambda o: PolynomialLR(o,total_iters=6,power=2),4),0.2,11),
 "warmup_constant":(lambda o: LambdaLR(o,lambda k: min(1,k/5)),0.2,8),
}
for k,(m,lr,n) in cases.items():
    print('    {"%s", {%s}},'%(k,", ".join(repr(float(x)) for x in run(m,lr,n))))


def plateau(values,**k):
    p=torch.nn.Parameter(torch.zeros(1)); o=torch.optim.SGD([p],lr=0.2); s=ReduceLROnPlateau(o,**k); out=[]
    for v in values:
        s.step(v); out.append(o.param_groups[0]["lr"])
    return out


# The table of plateau_test.cc.
import random
rng=random.Random(7)
noisy=[round(3/(1+i/4)+rng.gauss(0,.15),3) for i in range(24)]
flat=[1,.9,.90005,.8999,.95,.9,.9,.85,.85,.85,.85,.85,math.nan,.85,.85,.1]
for name,values,options in (("noisy",noisy,dict(patience=1,factor=.5)),("flat",flat,dict(patience=2,factor=.1)),
                            ("cooldown",noisy,dict(patience=0,cooldown=2,factor=.3)),
                            ("larger",[-v for v in noisy],dict(patience=1,mode="max",factor=.5,threshold=.01)),
                            ("floor",[1]*8,dict(patience=0,factor=.1,min_lr=.005)),("tiny",[1]*9,dict(patience=0,factor=1e-4))):
    print('    {"%s", {%s}, {%s}, {%s}},'%(name,", ".join(".%s = %s"%kv for kv in options.items()),", ".join(map(repr,values)),", ".join(map(repr,plateau(values,**options)))))
